"""Who may ask, and how often."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from secrets import token_urlsafe
from typing import Any, Final

from lucius.app.adapters import open_ledger
from lucius.app.settings import Settings
from lucius.core.inputs import Callback
from lucius.http.access import JwtAccess, JwtPolicy, KeyAccess
from lucius.http.console.pages import ConsoleOptions
from lucius.http.console.signing_in import OidcClient
from lucius.http.context import Authenticate
from lucius.http.keys import FileKeys, KeyFile, KnownKeys, SharedKeys
from lucius.http.limits import HostCheck, RateLimit, host_of
from lucius.http.tokens import CallbackTokens
from lucius.ports.keys import KeyStore
from lucius.ports.leases import LeaseStore
from lucius.ports.ledger import Ledger, Shared

# What lets a worker answer: addresses and a token in the directive, checked on the way back.


class ReplyTokens:
    """`required`: a reply over the bus without a token is refused.

    `public_url`: where the API is; empty: this process does not know, so directives name no URLs. `prefix`:
    what the names of topics begin with on the broker.
    """

    def __init__(
        self, tokens: CallbackTokens, public_url: str, *, required: bool, prefix: str = ""
    ) -> None:
        self._tokens = tokens
        kinds = ("ack", "result", "heartbeat", "release") if public_url else ()
        self._urls = {kind: f"{public_url.rstrip('/')}/v1/callbacks/{kind}" for kind in kinds}
        self._required = required
        self._prefix = prefix

    def decorate(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a directive needs to be answered; minted at publish, stored nowhere."""
        body["reply_topic"] = f"{self._prefix}{body['reply_topic']}"
        if self._urls:
            body["callback_urls"] = dict(self._urls)
        body["callback_token"] = self._tokens.mint(
            body["tenant_id"], body["jobId"], body["stepId"], body["attempt_no"], body["lease_id"]
        )
        return body

    def guard(self, body: Mapping[str, Any], job_id: str, received: Callback) -> str | None:
        """Why a reply of the bus is refused: it must carry a token where so configured, and the right one."""
        token = body.get("callback_token")
        if token is None:
            return "the reply carries no callback token" if self._required else None
        bound = (job_id, received.step_id, received.attempt_no, received.lease_id)
        if self._tokens.verify(str(token), *bound) is None:
            return "the callback token is not for this attempt"
        return None


SESSION: Final = timedelta(hours=8)
"""How long somebody stays signed in to the console: a working day; never longer than their token holds."""
WORKERS_SHARE: Final = 20
"""One command makes several steps, and each of them a pull, an ACK, heartbeats and a result."""


def key_file(settings: Settings) -> KeyFile:
    return KeyFile(settings.data_dir / "keys.json")


def open_keys(settings: Settings, ledger: Ledger) -> KnownKeys | None:
    """API keys: in a file, or in the ledger where processes share it. None: callers have none."""
    if settings.auth != "keys":
        return None
    return SharedKeys(ledger.keys()) if isinstance(ledger, Shared) else key_file(settings)


@asynccontextmanager
async def key_store(settings: Settings) -> AsyncIterator[KeyStore]:
    """Where `lucius keys` reads and writes."""
    if not settings.shared:
        yield FileKeys(key_file(settings))
        return
    ledger = await open_ledger(settings)
    try:
        assert isinstance(ledger, Shared), "the registry says so"
        yield ledger.keys()
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
        )
    )


def console_options(
    settings: Settings,
    records: LeaseStore,
    keys: KnownKeys | None,
    authenticate: Authenticate | None,
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
        records=records,
        url=settings.console_url,
        session_seconds=SESSION.total_seconds(),
        keys=keys,
        access=authenticate if isinstance(authenticate, JwtAccess) else None,
        oidc=client,
        epoch=token_urlsafe(9) if settings.ledger.forgets else "",
    )


def rate_limit(settings: Settings) -> RateLimit | None:
    per_second = settings.rate_limit_per_second
    return RateLimit(per_second) if per_second is not None else None


def worker_rate_limit(settings: Settings) -> RateLimit | None:
    per_second = settings.rate_limit_per_second
    return RateLimit(WORKERS_SHARE * per_second) if per_second is not None else None


def host_check(settings: Settings) -> HostCheck | None:
    """Where callers are not known, only the names of loopback and of our URLs are ours."""
    if settings.auth != "none":
        return None
    urls = (settings.public_url, settings.console_url)
    return HostCheck([host_of(url) for url in urls if url])
