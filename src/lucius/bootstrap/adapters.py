"""Which adapter serves which port, by the settings. No other module names them."""

import importlib
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from uuid import uuid4

from lucius.admission.ingress import IngressPolicy
from lucius.api.access import JwtAccess, JwtPolicy, KeyAccess
from lucius.api.context import Authenticate
from lucius.api.keys import FileKeys, KeyFile, KnownKeys
from lucius.api.limits import HostCheck, RateLimit, host_of
from lucius.api.shared_keys import SharedKeys
from lucius.bootstrap.secrets import made_once
from lucius.buses.memory import MemoryBus
from lucius.configs.files import FileConfig
from lucius.console.oidc import OidcClient
from lucius.console.room import ConsoleOptions
from lucius.core.errors import LuciusError, WorkspaceRefusedError
from lucius.core.plan import OUTBOX
from lucius.engines.outbox.lane_leases import LeasedLanes
from lucius.engines.outbox.ownership import EMBEDDED
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sqlite.ledger import SqliteLedger
from lucius.platform import Service
from lucius.ports.bus import Bus, Provisioner
from lucius.ports.config import ConfigSource
from lucius.ports.keys import KeyStore
from lucius.ports.lanes import ALL_LANES, BOTH_ENGINES, NO_LANES, Lanes
from lucius.ports.ledger import Ledger
from lucius.ports.workspace import Workspace
from lucius.services import Embedding, Ocr, Sis, missing
from lucius.services.endpoint import AnswerEndpoint
from lucius.settings import Settings
from lucius.settings.behaviour import EMBEDDED_BACKENDS
from lucius.settings.kinds import show
from lucius.settings.stored import StoredSettings
from lucius.upkeep.job_workspaces import JobWorkspaces
from lucius.workspaces.by_scheme import WorkspaceByScheme
from lucius.workspaces.local import LocalWorkspace, path_of
from lucius.workspaces.memory import MemoryWorkspace
from lucius.workspaces.places import Places

LEDGER_FILE: Final = "ledger.db"
INSTALLATION_FILE: Final = "installation"
WORKSPACE_SCHEMES: Final = ("file", "mem")
BLOB_SCHEMES: Final = ("az", "abfs", "abfss", "https")
PACKAGED_SERVICES: Final = (Ocr, Embedding, Sis)


class UnsupportedError(LuciusError):
    """A backend or service that this build does not have."""


class LibrariesMissingError(UnsupportedError):
    """The packaged services are not installed: a server can run without them."""


async def open_ledger(settings: Settings, *, readonly: bool = False) -> Ledger:
    if settings.storage_backend == "memory":
        return MemoryLedger()
    if settings.storage_backend == "sqlite":
        path = ledger_path(settings)
        opened = SqliteLedger.open_readonly(path) if readonly else SqliteLedger.open(path)
        return await opened
    ledger: Ledger = await azure_tables(settings).open_ledger(
        settings.storage_backend,
        settings.table_connection.get_secret_value(),
        table_settings(settings),
        hot=settings.hot_tenants,
    )
    return ledger


def open_lanes(
    settings: Settings, ledger: Ledger, *, takes: bool, engine: str | None = OUTBOX
) -> Lanes:
    """Which lanes this process owns: all of an embedded ledger, a part of a shared one, or none.

    `engine`: whose jobs it moves; None: those of both.
    """
    if settings.storage_backend in EMBEDDED_BACKENDS:
        every = BOTH_ENGINES if engine is None else ALL_LANES
        return every if takes else NO_LANES
    if engine is None:
        raise UnsupportedError(
            f"`lucius up` runs jobs on Temporal over an embedded ledger, and"
            f" LUCIUS_STORAGE_BACKEND={settings.storage_backend} is shared: run `lucius orchestrator`,"
            " `lucius invoker` and `lucius worker`"
        )
    name = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
    store = azure_tables(settings).leases_of(ledger)
    return LeasedLanes(
        store, name, clock=time.monotonic, term=settings.lane_lease, takes=takes, engine=engine
    )


def azure_tables(settings: Settings) -> ModuleType:
    """The Azure ledgers need an SDK that only their users install."""
    try:
        return importlib.import_module("lucius.ledgers.azure.opening")
    except ImportError as error:
        raise UnsupportedError(
            f"LUCIUS_STORAGE_BACKEND={settings.storage_backend} needs the package {error.name}:"
            " pip install 'lucius[azure]'"
        ) from error


def table_settings(settings: Settings) -> dict[str, str]:
    """The settings that name a table, and the names that they give."""
    shared = {
        "LUCIUS_IDEMPOTENCY_TABLE": settings.idempotency_table,
        "LUCIUS_JOB_INDEX_TABLE": settings.job_index_table,
        "LUCIUS_INFLIGHT_TABLE": settings.inflight_table,
    }
    if settings.storage_backend == "ledger":
        return {"LUCIUS_LEDGER_TABLE": settings.ledger_table, **shared}
    return {
        "LUCIUS_JOBS_TABLE": settings.jobs_table,
        "LUCIUS_STEPS_TABLE": settings.steps_table,
        "LUCIUS_OUTBOX_TABLE": settings.outbox_table,
        "LUCIUS_EVENTS_TABLE": settings.events_table,
        **shared,
    }


async def open_config(settings: Settings, stored: StoredSettings | None = None) -> ConfigSource:
    """`stored` is told what App Configuration says of the settings, at each look."""
    if settings.config_source == "files":
        return FileConfig(settings.protocol_paths(), policy=settings.retry_policy())
    opened: ConfigSource = await app_configuration().open_app_configuration(
        settings.appconfig_connection.get_secret_value(),
        settings.appconfig_label,
        (stored or StoredSettings(settings)).policy,
    )
    return opened


async def stored_settings(connection: str, label: str) -> Mapping[str, str]:
    """What App Configuration says of the settings, by variable."""
    found: Mapping[str, str] = await app_configuration().read_settings(connection, label)
    return found


def app_configuration() -> ModuleType:
    """The adapter needs an SDK that only users of Azure install."""
    try:
        return importlib.import_module("lucius.configs.app_configuration")
    except ImportError as error:
        raise UnsupportedError(
            "LUCIUS_APPCONFIG_CONNECTION needs the Azure SDK: pip install 'lucius[azure]'"
        ) from error


def open_bus(settings: Settings) -> Bus:
    if settings.bus_backend == "memory":
        return MemoryBus()
    if settings.bus_backend == "servicebus":
        creates = settings.bus_provision == "auto"
        connecting = service_bus()
        plan = service_bus_plan(settings)
        bus: Bus = connecting.open_service_bus(
            settings.servicebus_connection.get_secret_value(), plan, creates=creates
        )
        return bus
    return open_nats(settings)


def open_nats(settings: Settings) -> Bus:
    """Its library comes with an extra, so it is looked for only where it is needed."""
    try:
        from lucius.buses.nats import NatsBus
    except ImportError as error:
        raise UnsupportedError(
            f"LUCIUS_BUS_BACKEND=nats needs the package {error.name}: pip install 'lucius[nats]'"
        ) from error
    servers = [each.strip() for each in settings.nats_url.split(",") if each.strip()]
    return NatsBus(servers, system=settings.system, **nats_tls(settings))


def nats_tls(settings: Settings) -> dict[str, Any]:
    """Where a certificate is named, or an address that asks for encryption."""
    named = (settings.nats_ca, settings.nats_certificate, settings.nats_private_key_path)
    if not any(named) and not settings.nats_url.startswith("tls://"):
        return {}
    if bool(settings.nats_certificate) != bool(settings.nats_private_key_path):
        raise UnsupportedError(
            "LUCIUS_NATS_CERTIFICATE and LUCIUS_NATS_PRIVATE_KEY_PATH are given together: a certificate"
            " and its key"
        )
    try:
        context = ssl.create_default_context(cafile=settings.nats_ca or None)
        if settings.nats_certificate:
            context.load_cert_chain(settings.nats_certificate, settings.nats_private_key_path)
    except (OSError, ValueError) as error:
        raise UnsupportedError(
            "LUCIUS_NATS_CA, LUCIUS_NATS_CERTIFICATE and LUCIUS_NATS_PRIVATE_KEY_PATH name files in PEM"
            f" form, and one of {', '.join(name for name in named if name)} cannot be used: {error}"
        ) from error
    return {"tls": context}


def service_bus() -> ModuleType:
    """The adapter needs an SDK that only users of Azure install."""
    try:
        return importlib.import_module("lucius.buses.service_bus.connecting")
    except ImportError as error:
        raise UnsupportedError(
            "LUCIUS_BUS_BACKEND=servicebus needs the Azure SDK: pip install 'lucius[azure]'"
        ) from error


def service_bus_plan(settings: Settings) -> Any:
    return service_bus().Plan(
        duplicate_window=settings.servicebus_duplicate_window,
        expiry=settings.servicebus_expiry,
        lock=settings.servicebus_lock,
        max_deliveries=settings.servicebus_max_deliveries,
    )


def open_provisioner(settings: Settings) -> Provisioner:
    """Who creates topics, subscriptions and rules, with rights that running processes do not need."""
    if settings.bus_backend != "servicebus":
        raise UnsupportedError(
            f"LUCIUS_BUS_BACKEND={settings.bus_backend} needs no provisioning: processes create what they"
            " need. For Service Bus, set LUCIUS_BUS_BACKEND=servicebus"
        )
    made: Provisioner = service_bus().open_administrator(
        settings.servicebus_connection.get_secret_value(), service_bus_plan(settings)
    )
    return made


def open_workspace(settings: Settings) -> Workspace:
    """The scheme of a reference chooses. `file` reaches the workspaces and the roots in the settings."""
    local = LocalWorkspace(
        workspace_root(settings),
        readable=[Path(root).expanduser() for root in settings.input_roots if not is_url(root)],
        writable=[Path(root).expanduser() for root in settings.output_roots if not is_url(root)],
        protected=[settings.data_dir],
    )
    local.recover()
    memory = MemoryWorkspace(jobs=settings.workspace_url)
    return WorkspaceByScheme({"file": local, "mem": memory, **blobs(settings)})


def is_url(root: str) -> bool:
    return "://" in root


def blobs(settings: Settings) -> dict[str, Workspace]:
    """By scheme. Its library comes with an extra, so it is looked for only where it is needed."""
    roots = [root for root in (*settings.input_roots, *settings.output_roots) if is_url(root)]
    if not settings.blob_connection and not roots:
        return {}
    if not settings.blob_connection:
        raise UnsupportedError(
            f"LUCIUS_INPUT_ROOTS or LUCIUS_OUTPUT_ROOTS name {', '.join(roots)}:"
            " set LUCIUS_BLOB_CONNECTION"
        )
    try:
        azure = importlib.import_module("lucius.workspaces.azure_blob")
    except ImportError as error:
        raise UnsupportedError(
            f"LUCIUS_BLOB_CONNECTION needs the package {error.name}: pip install 'lucius[azure]'"
        ) from error
    try:
        opened: Workspace = azure.open_blobs(
            settings.blob_connection.get_secret_value(),
            home=settings.workspace_url,
            readable=[root for root in settings.input_roots if is_url(root)],
            writable=[root for root in settings.output_roots if is_url(root)],
        )
    except WorkspaceRefusedError as error:
        raise UnsupportedError(
            f"LUCIUS_WORKSPACE_URL, LUCIUS_INPUT_ROOTS or LUCIUS_OUTPUT_ROOTS: {error}"
        ) from error
    return dict.fromkeys(BLOB_SCHEMES, opened)


def job_workspaces(
    settings: Settings, workspace: Workspace, *, readonly: bool = False
) -> JobWorkspaces:
    """The workspaces of all jobs."""
    home = f"{settings.workspace_url.rstrip('/')}/{settings.system}/"
    return JobWorkspaces(workspace, home, "" if readonly else installation(settings))


def installation(settings: Settings) -> str:
    """Whose the workspaces are. Processes that share a ledger are one installation.

    An embedded one is named by a file in its data directory. Keys may be rotated, so they do not count.
    """
    if settings.storage_backend in EMBEDDED_BACKENDS:
        return made_once(settings.data_dir / INSTALLATION_FILE).decode()
    connection = settings.table_connection.get_secret_value().lower()
    named = re.search("accountname=([^;]+)", connection) or re.search(
        "https://([^./]+)", connection
    )
    account = named[1] if named is not None else ""
    table = settings.jobs_table if settings.storage_backend == "table" else settings.ledger_table
    return sha256(f"{account}/{settings.storage_backend}/{table}".encode()).hexdigest()


def home_of(settings: Settings) -> str:
    """What worker ids of the services in this installation's process begin with."""
    whose = sha256(made_once(settings.data_dir / INSTALLATION_FILE)).hexdigest()[:8]
    return f"{EMBEDDED}{whose}/"


def check_workspace(settings: Settings) -> None:
    """Services that run here write where LUCIUS_WORKSPACE_URL says, or do not start."""
    scheme = settings.workspace_url.partition(":")[0].lower()
    url = f"LUCIUS_WORKSPACE_URL={show(settings.workspace_url)}"
    if scheme in BLOB_SCHEMES and not settings.blob_connection:
        raise UnsupportedError(
            f"{url}: set LUCIUS_BLOB_CONNECTION to a connection string of its account, or to"
            " https://NAME.blob.core.windows.net for the identity of the process"
        )
    if scheme not in (*WORKSPACE_SCHEMES, *BLOB_SCHEMES):
        raise UnsupportedError(
            f"{url}: the services of this build write to"
            f" {', '.join(WORKSPACE_SCHEMES)} or {', '.join(BLOB_SCHEMES)};"
            " run them elsewhere (lucius up --no-services)"
        )


def workspace_root(settings: Settings) -> Path:
    """Where the workspaces of the jobs lie; where they would, if they are not files."""
    if not settings.workspace_url.lower().startswith("file:"):
        return settings.data_dir.absolute() / "workspace"
    try:
        return Path(path_of(settings.workspace_url))
    except WorkspaceRefusedError as error:
        raise UnsupportedError(f"LUCIUS_WORKSPACE_URL: {error}") from error


def ingress_policy(settings: Settings) -> IngressPolicy:
    """No reference of a request leads to the secrets of this process, or to the work of others."""
    policy = settings.ingress_policy()
    kept = Places([settings.data_dir, workspace_root(settings)])
    remote = not settings.workspace_url.startswith("file:")
    home = f"{settings.workspace_url}/{settings.system}" if remote else ""
    return replace(policy, references=replace(policy.references, protects=kept.hold, home=home))


def ledger_path(settings: Settings) -> Path:
    return settings.data_dir / LEDGER_FILE


def key_file(settings: Settings) -> KeyFile:
    return KeyFile(settings.data_dir / "keys.json")


def open_keys(settings: Settings, ledger: Ledger) -> KnownKeys | None:
    """API keys: in a file, or in the ledger where processes share it. None: callers have none."""
    if settings.auth != "keys":
        return None
    if settings.storage_backend in EMBEDDED_BACKENDS:
        return key_file(settings)
    return SharedKeys(azure_tables(settings).keys_of(ledger))


@asynccontextmanager
async def key_store(settings: Settings) -> AsyncIterator[KeyStore]:
    """Where `lucius keys` reads and writes."""
    if settings.storage_backend in EMBEDDED_BACKENDS:
        yield FileKeys(key_file(settings))
        return
    ledger = await open_ledger(settings)
    try:
        yield azure_tables(settings).keys_of(ledger)
    finally:
        await ledger.close()


def authenticator(settings: Settings, keys: KnownKeys | None) -> Authenticate | None:
    if keys is not None:
        return KeyAccess(keys)
    return jwt_access(settings) if settings.auth == "jwt" else None


def jwt_access(settings: Settings) -> JwtAccess:
    return JwtAccess(
        JwtPolicy(
            issuer=settings.jwt_issuer,
            audience=settings.jwt_audience,
            jwks_url=settings.jwt_jwks_url,
            algorithms=settings.jwt_algorithms,
            roles_claim=settings.jwt_roles_claim,
            tenants_claim=settings.jwt_tenants_claim,
        )
    )


def console_options(
    settings: Settings, keys: KnownKeys | None, authenticate: Authenticate | None
) -> ConsoleOptions:
    """People sign in with what the API takes: its keys, or tokens of its issuer."""
    client = None
    if settings.console_client_id:
        client = OidcClient(
            settings.jwt_issuer,
            settings.console_client_id,
            settings.console_client_secret.get_secret_value(),
            settings.console_scopes,
            settings.console_url,
        )
    return ConsoleOptions(
        url=settings.console_url,
        session_seconds=settings.console_session.total_seconds(),
        keys=keys,
        access=authenticate if isinstance(authenticate, JwtAccess) else None,
        oidc=client,
    )


def rate_limit(settings: Settings) -> RateLimit | None:
    per_second = settings.rate_limit_per_second
    return RateLimit(per_second) if per_second is not None else None


def worker_rate_limit(settings: Settings) -> RateLimit | None:
    per_second = settings.worker_rate_limit_per_second
    return RateLimit(per_second) if per_second is not None else None


def host_check(settings: Settings) -> HostCheck | None:
    """Where callers are not known, only the names of loopback and of our URLs are ours."""
    if settings.auth != "none":
        return None
    urls = (settings.public_url, settings.console_url)
    return HostCheck([host_of(url) for url in urls if url])


def packaged_services(settings: Settings) -> list[Service]:
    """OCR, EMBEDDING and SIS."""
    check_libraries()
    return [Ocr(), Embedding(), Sis(answer_endpoint(settings))]


def check_libraries() -> None:
    """What the packaged services compute with comes with an extra."""
    if names := missing():
        raise LibrariesMissingError(
            f"the services OCR, EMBEDDING and SIS are not installed ({', '.join(names)} missing): pip"
            " install 'lucius[services]' (Python 3.11 or 3.12), or run workers of your own, which pull"
            " their directives from POST /v1/services/{service}/directives:pull"
        )


def packaged_names() -> list[str]:
    """As `lucius service run` takes them."""
    check_libraries()
    return [f"{kind.__module__}:{kind.__qualname__}" for kind in PACKAGED_SERVICES]


def answer_endpoint(settings: Settings) -> AnswerEndpoint | None:
    if not settings.answer_url:
        return None
    if not settings.answer_model:
        raise UnsupportedError(
            "LUCIUS_ANSWER_URL is set: name the model in LUCIUS_ANSWER_MODEL too"
        )
    key = settings.answer_key.get_secret_value()
    return AnswerEndpoint(settings.answer_url, settings.answer_model, key)


def named_service(name: str, settings: Settings) -> Service:
    """`package.module:Name`, a Service class or instance."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UnsupportedError(f"{name} does not name a service: it takes MODULE:NAME")
    try:
        found = getattr(importlib.import_module(module), attribute)
        made = _made(found, settings) if isinstance(found, type) else found
    except UnsupportedError:
        raise
    except Exception as error:  # whatever the module does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise UnsupportedError(f"{name} cannot be loaded: {reason}") from error
    if not isinstance(made, Service):
        raise UnsupportedError(f"{name} is not a lucius.platform.Service")
    return made


def _made(kind: type, settings: Settings) -> Any:
    """A packaged service as `lucius up` has it; others are made without arguments."""
    if kind in PACKAGED_SERVICES:
        return next(each for each in packaged_services(settings) if type(each) is kind)
    return kind()
