"""Settings of how LUCIUS behaves: general, retries and time, limits and security."""
# ruff: noqa: RUF009 - `setting` makes a dataclass field

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from lucius.core.limits import MAX_ATTEMPTS, MAX_PAYLOAD_BYTES
from lucius.core.references import DEPLOYED_SCHEMES, EMBEDDED_SCHEMES
from lucius.settings.kinds import (
    COUNT_OR_NONE,
    FIELDS,
    FLAG,
    KEYS,
    MAX_RATE,
    NAMES,
    PATH,
    RATE_OR_NONE,
    SECONDS,
    TEXT,
    URL,
    WAITS,
    matching,
    one_of,
    setting,
    whole,
)

EMBEDDED_BACKENDS: Final = ("sqlite", "memory")
WORKERS_SHARE: Final = 20
"""One command makes several steps, and each of them a pull, an ACK, heartbeats and a result."""


def _schemes(others: Mapping[str, Any]) -> str:
    """Files of this machine may be named only where there is one user, who can read them anyway."""
    single = others["auth"] == "none" and others["storage_backend"] in EMBEDDED_BACKENDS
    return ",".join(EMBEDDED_SCHEMES if single else DEPLOYED_SCHEMES)


def _roots(others: Mapping[str, Any]) -> str:
    return "." if others["auth"] == "none" else ""


def _worker_rate(others: Mapping[str, Any]) -> str:
    limit = others["rate_limit_per_second"]
    return "none" if limit is None else str(min(WORKERS_SHARE * limit, MAX_RATE))


def _log_format(others: Mapping[str, Any]) -> str:
    return "text" if sys.stderr is not None and sys.stderr.isatty() else "json"


@dataclass(frozen=True, kw_only=True)
class General:
    """General"""

    system: str = setting(
        "SYSTEM",
        matching("lower-case letters, digits and -", r"[a-z0-9][a-z0-9-]{0,62}"),
        "lucius",
        "Name of this installation: the first folder of every workspace path, and the first part of"
        " every name on a NATS server",
    )
    data_dir: Path = setting(
        "DATA_DIR", PATH, ".lucius", "Directory of the embedded ledger, workspace and keys"
    )
    public_url: str = setting(
        "PUBLIC_URL",
        URL,
        "",
        "Base URL under which platform services reach the API; empty: where it listens, if that is"
        " one address",
    )
    log_level: str = setting(
        "LOG_LEVEL",
        one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        "INFO",
        "Least severe level that is logged",
    )
    log_format: str = setting(
        "LOG_FORMAT",
        one_of("json", "text"),
        _log_format,
        "How log lines are written",
        shown="text on a terminal, else json",
    )
    traces: str = setting(
        "TRACES",
        one_of("none", "console"),
        "none",
        "Whether spans are printed; they are exported wherever an OTLP endpoint is set",
    )
    otlp_endpoint: str = setting(
        "OTLP_ENDPOINT",
        URL,
        "",
        "OTLP collector that takes spans over HTTP, such as http://collector:4318; "
        "OTEL_EXPORTER_OTLP_ENDPOINT counts too",
    )
    url: str = setting(
        "URL", URL, "http://127.0.0.1:8700", "API that the command line and the client talk to"
    )
    tenant: str = setting("TENANT", TEXT, "default", "Tenant that `lucius submit` submits for")
    api_key: str = setting(
        "API_KEY", TEXT, "", "API key that the command line and the client send", secret=True
    )


@dataclass(frozen=True, kw_only=True)
class RetriesAndTime:
    """Retries and time"""

    max_attempts: int = setting(
        "MAX_ATTEMPTS", whole(1, MAX_ATTEMPTS), "3", "Attempts of a step, whatever uses them up"
    )
    ack_timeout: timedelta = setting(
        "ACK_TIMEOUT_SECONDS", SECONDS, "30", "How long a published directive may stay without ACK"
    )
    lease: timedelta = setting(
        "LEASE_SECONDS", SECONDS, "900", "How long a service may work without heartbeat or result"
    )
    publish_backoff: tuple[timedelta, ...] = setting(
        "DISPATCH_BACKOFF_SECONDS", WAITS, "30,120,600", "Waits after a refused publish"
    )
    ack_backoff: tuple[timedelta, ...] = setting(
        "ACK_BACKOFF_SECONDS", WAITS, "60,300,900", "Waits after a missing ACK"
    )
    execution_backoff: tuple[timedelta, ...] = setting(
        "EXECUTION_BACKOFF_SECONDS",
        WAITS,
        "30,120,600",
        "Waits after a failed execution or an expired lease",
    )
    outbox_retry_interval: timedelta = setting(
        "OUTBOX_RETRY_INTERVAL",
        SECONDS,
        "5",
        "At most so many seconds between two looks at what is due",
    )
    job_sla: timedelta = setting("JOB_SLA_SECONDS", SECONDS, "86400", "How long a job may live")
    pause_sla: timedelta = setting(
        "PAUSE_SLA_SECONDS", SECONDS, "604800", "How long a job may stay paused"
    )
    sla_action: str = setting(
        "SLA_ACTION",
        one_of("escalate", "fail"),
        "escalate",
        "What happens beyond these: an event and a metric, or the job fails",
    )
    drain: timedelta = setting(
        "DRAIN_SECONDS",
        SECONDS,
        "10",
        "How long running steps and open requests may finish after SIGTERM; ten seconds later the"
        " process has ended, whatever still runs",
    )
    loop_blocked: timedelta = setting(
        "LOOP_BLOCKED_SECONDS",
        SECONDS,
        "1",
        "How long the event loop may stand still before the log says what holds it up",
    )


@dataclass(frozen=True, kw_only=True)
class LimitsSection:
    """Limits"""

    max_inflight: int | None = setting("MAX_INFLIGHT", COUNT_OR_NONE, "none", "Live jobs in all")
    max_inflight_per_tenant: int | None = setting(
        "MAX_INFLIGHT_PER_TENANT",
        COUNT_OR_NONE,
        "1000",
        "Live jobs of a tenant without a limit of its own in the configuration",
    )
    max_inflight_per_lane: int | None = setting(
        "MAX_INFLIGHT_PER_LANE", COUNT_OR_NONE, "none", "Live jobs per lane and mode"
    )
    job_cache_bytes: int = setting(
        "JOB_CACHE_BYTES",
        whole(1_048_576, 2**40),
        "268435456",
        "Memory for jobs that are kept at hand; what does not fit is read from the ledger again",
    )
    max_payload_bytes: int = setting(
        "MAX_PAYLOAD_BYTES",
        whole(1, MAX_PAYLOAD_BYTES),
        str(MAX_PAYLOAD_BYTES),
        "Largest payload of a request, as JSON",
    )
    max_body_bytes: int = setting(
        "MAX_BODY_BYTES", whole(1024, 2**26), "1048576", "Largest HTTP request body"
    )
    request_head_timeout: timedelta = setting(
        "REQUEST_HEAD_SECONDS",
        SECONDS,
        "10",
        "How long a client may take to send the head of a request",
    )
    request_body_timeout: timedelta = setting(
        "REQUEST_BODY_SECONDS", SECONDS, "30", "And to send its body"
    )
    unread_answer_timeout: timedelta = setting(
        "UNREAD_ANSWER_SECONDS",
        SECONDS,
        "30",
        "How long a client may take nothing of an answer that waits for it",
    )
    max_connections: int = setting(
        "MAX_CONNECTIONS",
        whole(1, 10**6),
        "2000",
        "HTTP connections in all; a few more are kept for health checks and operators",
    )
    max_connections_per_address: int = setting(
        "MAX_CONNECTIONS_PER_ADDRESS",
        whole(1, 10**6),
        "1000",
        "HTTP connections of one address (IPv6: of one /64); behind a proxy, those of the proxy",
    )
    max_waiting_per_caller: int = setting(
        "MAX_WAITING_PER_CALLER",
        whole(1, 10**6),
        "250",
        "Event streams, long polls and pulls that wait at once, of one caller, or of one address"
        " where callers are not known",
    )
    rate_limit_per_second: float | None = setting(
        "RATE_LIMIT_PER_SECOND",
        RATE_OR_NONE,
        "none",
        "HTTP requests a second of one caller, or of one address where callers are not known",
    )
    worker_rate_limit_per_second: float | None = setting(
        "WORKER_RATE_LIMIT_PER_SECOND",
        RATE_OR_NONE,
        _worker_rate,
        "HTTP replies a second for one tenant, and requests to the pull gateway of one caller",
        shown=f"{WORKERS_SHARE} times LUCIUS_RATE_LIMIT_PER_SECOND",
    )


@dataclass(frozen=True, kw_only=True)
class Security:
    """Security"""

    auth: str = setting(
        "AUTH",
        one_of("none", "keys", "jwt"),
        "none",
        "How callers of the API are known; `none`: only the user who runs the server, on loopback",
    )
    jwt_issuer: str = setting("JWT_ISSUER", URL, "", "OIDC issuer, with `jwt`")
    jwt_audience: str = setting(
        "JWT_AUDIENCE", TEXT, "", "Audience that tokens must name, with `jwt`"
    )
    jwt_jwks_url: str = setting("JWT_JWKS_URL", URL, "", "Keys of the issuer, with `jwt`")
    jwt_algorithms: tuple[str, ...] = setting(
        "JWT_ALGORITHMS", NAMES, "RS256,ES256", "Signature algorithms that are accepted"
    )
    jwt_roles_claim: str = setting(
        "JWT_ROLES_CLAIM", TEXT, "roles", "Claim that lists a caller's roles, with `jwt`"
    )
    jwt_tenants_claim: str = setting(
        "JWT_TENANTS_CLAIM",
        TEXT,
        "tenants",
        "Claim that lists a caller's tenants, with `jwt`; `*` means all",
    )
    require_reply_token: bool = setting(
        "REQUIRE_REPLY_TOKEN",
        FLAG,
        "false",
        "Whether replies over the bus must carry their callback token",
    )
    callback_keys: tuple[str, ...] = setting(
        "CALLBACK_KEYS",
        KEYS,
        "",
        "Keys of callback tokens, `id:secret`, the current one last; empty: made in LUCIUS_DATA_DIR",
        secret=True,
    )
    reference_schemes: tuple[str, ...] = setting(
        "REFERENCE_SCHEMES",
        NAMES,
        _schemes,
        "Schemes that references may have",
        shown=f"{','.join(EMBEDDED_SCHEMES)}; without `file` where deployed or with authentication",
    )
    input_roots: tuple[str, ...] = setting(
        "INPUT_ROOTS",
        NAMES,
        _roots,
        "Directories, and places such as az://CONTAINER/PATH, that platform services may read from, for"
        " every tenant",
        shown="the current directory with LUCIUS_AUTH=none, else none",
    )
    output_roots: tuple[str, ...] = setting(
        "OUTPUT_ROOTS",
        NAMES,
        _roots,
        "Directories, and places such as az://CONTAINER/PATH, that `output_ref` may lead into; they are"
        " readable too",
        shown="the current directory with LUCIUS_AUTH=none, else none",
    )
    reference_hosts: tuple[str, ...] = setting(
        "REFERENCE_HOSTS",
        NAMES,
        "",
        "Hosts, buckets and containers that references may name, as globs; empty: any",
    )
    allow_payload_secrets: tuple[str, ...] = setting(
        "ALLOW_PAYLOAD_SECRETS",
        FIELDS,
        "",
        "Payload fields that may hold credentials, which are then stored and passed on as they are;"
        " `*` for every field",
    )
    webhook_schemes: tuple[str, ...] = setting(
        "WEBHOOK_SCHEMES", NAMES, "https", "Schemes that completion webhooks may have"
    )
    webhook_hosts: tuple[str, ...] = setting(
        "WEBHOOK_HOSTS",
        NAMES,
        "",
        "Hosts that completion webhooks may name, as globs; empty: any public one",
    )
    webhook_secret: str = setting(
        "WEBHOOK_SECRET",
        TEXT,
        "",
        "Secret that the webhook secrets of the tenants are derived from; several with commas while"
        " it is rotated; empty: made in LUCIUS_DATA_DIR",
        secret=True,
    )
