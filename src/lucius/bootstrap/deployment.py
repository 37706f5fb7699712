"""Which deployment this process belongs to: the one that has its ledger. The bus keeps its mark."""

import hashlib
from urllib.parse import urlsplit

from lucius.bootstrap.secrets import made_once
from lucius.core.routing import reply_topic
from lucius.ports.bus import Subscription, deployment_mark
from lucius.settings import Settings

EMBEDDED = ("sqlite", "memory")


def mark_of(settings: Settings) -> Subscription:
    """The same for all processes with one ledger, and another for every other ledger."""
    return deployment_mark(reply_topic(0), hashlib.sha256(_ledger(settings)).hexdigest()[:12])


def _ledger(settings: Settings) -> bytes:
    if settings.storage_backend in EMBEDDED:
        return made_once(settings.data_dir / "deployment.id")
    single = settings.storage_backend == "ledger"
    table = settings.ledger_table if single else settings.jobs_table
    account = account_of(settings.table_connection.get_secret_value())
    return f"{account}/{settings.storage_backend}/{table}".encode()


def account_of(connection: str) -> str:
    """The storage account, from a connection string or from its URL: its name is unique on Azure."""
    for part in connection.split(";"):
        name, _, value = part.partition("=")
        if name.strip().lower() == "accountname":
            return value.strip()
    return (urlsplit(connection).hostname or connection).split(".")[0]
