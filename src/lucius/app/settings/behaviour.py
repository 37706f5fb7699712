"""Settings of how LUCIUS behaves: general, retries and time, limits and security."""

import sys
from typing import Annotated, Any, Literal

from pydantic import Field

from lucius.adapters.ledgers import LEDGERS
from lucius.app.settings.kinds import (
    Fields,
    Folder,
    Keys,
    Name,
    NameList,
    Rate,
    Seconds,
    Secret,
    Section,
    Text,
    Url,
    WaitList,
    WholeNumber,
    setting,
)
from lucius.core.limits import MAX_ATTEMPTS
from lucius.core.references import DEPLOYED_SCHEMES, EMBEDDED_SCHEMES


def _schemes(others: dict[str, Any]) -> str:
    """Files of this machine may be named only where there is one user, who can read them anyway."""
    single = others["auth"] == "none" and not LEDGERS[others["storage_backend"]].shared
    return ",".join(EMBEDDED_SCHEMES if single else DEPLOYED_SCHEMES)


def _log_format(others: dict[str, Any]) -> str:
    return "text" if sys.stderr is not None and sys.stderr.isatty() else "json"


def _roots(others: dict[str, Any]) -> str:
    return "." if others["auth"] == "none" else ""


class General(Section):
    """General"""

    system: Name = setting(
        "SYSTEM",
        "lucius",
        "Name of this installation: the first folder of every workspace path, and the first part of"
        " every name on a NATS server. Keys of App Configuration with this label take the place of the same"
        " keys without one",
    )
    data_dir: Folder = setting(
        "DATA_DIR", ".lucius", "Directory of the embedded ledger, workspace and keys"
    )
    public_url: Url = setting(
        "PUBLIC_URL",
        "",
        "Base URL under which platform services reach the API; empty: where it listens, if that is"
        " one address",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting(
        "LOG_LEVEL", "INFO", "Least severe level that is logged"
    )
    log_format: Literal["json", "text"] = setting(
        "LOG_FORMAT",
        _log_format,
        "How log lines are written",
        shown="`text` on a terminal, else `json`",
    )


class CommandLine(Section):
    """Command line and client"""

    url: Text = setting(
        "URL",
        "http://127.0.0.1:8700",
        "Server that the command line and the client call: http://, https:// or unix:PATH",
    )
    api_key: Secret = setting("API_KEY", "", "API key that the command line and the client send")


class RetriesAndTime(Section):
    """Retries and time"""

    max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)] = setting(
        "MAX_ATTEMPTS", "3", "Attempts of a step, whatever uses them up"
    )
    ack_timeout: Seconds = setting(
        "ACK_TIMEOUT_SECONDS", "30", "How long a published directive may stay without ACK"
    )
    lease: Seconds = setting(
        "LEASE_SECONDS", "900", "How long a service may work without heartbeat or result"
    )
    publish_backoff: WaitList = setting(
        "DISPATCH_BACKOFF_SECONDS", "30,120,600", "WaitList after a refused publish"
    )
    ack_backoff: WaitList = setting(
        "ACK_BACKOFF_SECONDS", "60,300,900", "WaitList after a missing ACK"
    )
    execution_backoff: WaitList = setting(
        "EXECUTION_BACKOFF_SECONDS",
        "30,120,600",
        "WaitList after a failed execution or an expired lease",
    )
    outbox_retry_interval: Seconds = setting(
        "OUTBOX_RETRY_INTERVAL",
        "5",
        "Longest time between two looks at what is due, in seconds",
    )
    job_sla: Seconds = setting(
        "JOB_SLA_SECONDS",
        "86400",
        "How long a job may live, and a pause for seven times as long; then LUCIUS_SLA_ACTION follows",
    )
    sla_action: Literal["escalate", "fail"] = setting(
        "SLA_ACTION",
        "escalate",
        "What happens to a job that lives or stays paused for too long. `escalate`: an event and a"
        " metric say so. `fail`: it fails",
    )
    drain: Seconds = setting(
        "DRAIN_SECONDS",
        "10",
        "How long running steps and open requests may finish after SIGTERM. Ten seconds later the"
        " process ends, whatever still runs",
    )


class LimitsSection(Section):
    """Limits"""

    max_inflight: WholeNumber = setting("MAX_INFLIGHT", "none", "Live jobs in all")
    max_inflight_per_tenant: WholeNumber = setting(
        "MAX_INFLIGHT_PER_TENANT",
        "1000",
        "Live jobs of a tenant without a limit of its own in the configuration",
    )
    max_inflight_per_lane: WholeNumber = setting(
        "MAX_INFLIGHT_PER_LANE", "none", "Live jobs per lane and mode"
    )
    max_inflight_per_lane_burst: WholeNumber = setting(
        "MAX_INFLIGHT_PER_LANE_BURST",
        "none",
        "Live jobs per lane in mode BURST; none: LUCIUS_MAX_INFLIGHT_PER_LANE",
    )
    rate_limit_per_second: Rate = setting(
        "RATE_LIMIT_PER_SECOND",
        "none",
        "HTTP requests a second of one caller, or of one address where callers are not known. Workers"
        " may send 20 times as many",
    )


class Security(Section):
    """Security"""

    auth: Literal["none", "keys", "jwt"] = setting(
        "AUTH",
        "none",
        "How the API knows its callers. `none`: only the user who runs the server, on loopback",
    )
    jwt_issuer: Url = setting("JWT_ISSUER", "", "OIDC issuer, with `jwt`")
    jwt_audience: Text = setting("JWT_AUDIENCE", "", "Audience that tokens must name, with `jwt`")
    jwt_jwks_url: Url = setting("JWT_JWKS_URL", "", "Keys of the issuer, with `jwt`")
    require_reply_token: bool = setting(
        "REQUIRE_REPLY_TOKEN",
        "false",
        "Whether replies over the bus must carry their callback token. One that they carry is always checked",
    )
    callback_keys: Keys = setting(
        "CALLBACK_KEYS",
        "",
        "Keys of callback tokens, the current one last; empty: one is made in LUCIUS_DATA_DIR",
    )
    reference_schemes: NameList = setting(
        "REFERENCE_SCHEMES",
        _schemes,
        "Schemes that references may have",
        shown=f"{','.join(EMBEDDED_SCHEMES)}; without `file` where deployed or with authentication",
    )
    input_roots: NameList = setting(
        "INPUT_ROOTS",
        _roots,
        "Directories, and places such as s3://BUCKET/PATH or https://HOST/PATH, that platform services may"
        " read from, for every tenant",
        shown="the current directory with LUCIUS_AUTH=none, else none",
    )
    output_roots: NameList = setting(
        "OUTPUT_ROOTS",
        _roots,
        "Directories, and places such as s3://BUCKET/PATH, that `output_ref` may lead into; services"
        " may read there too",
        shown="the current directory with LUCIUS_AUTH=none, else none",
    )
    reference_hosts: NameList = setting(
        "REFERENCE_HOSTS",
        "",
        "Hosts, buckets and containers that references may name, as globs; empty: any",
    )
    allow_payload_secrets: Fields = setting(
        "ALLOW_PAYLOAD_SECRETS",
        "",
        "Payload fields that may hold credentials. LUCIUS stores them and passes them on as they are",
    )
    webhook_hosts: NameList = setting(
        "WEBHOOK_HOSTS",
        "",
        "Hosts that completion webhooks may name, as globs; empty: any public one. One that is named without"
        " a glob may be in a private network",
    )
    webhook_secret: Secret = setting(
        "WEBHOOK_SECRET",
        "",
        "Secret from which each tenant's webhook secret is derived; several with commas while it is"
        " rotated; empty: one is made in LUCIUS_DATA_DIR",
    )


class Console(Section):
    """Console"""

    console_url: Url = setting(
        "CONSOLE_URL",
        "",
        "URL under which browsers reach this server, such as https://ops.example.org/lucius. Its path"
        " stands in front of every link; empty: the host that a browser names, and no path",
    )
    console_client_id: Text = setting(
        "CONSOLE_CLIENT_ID",
        "",
        "Client at LUCIUS_JWT_ISSUER with which people sign in to the console, with `jwt`",
    )
    console_client_secret: Secret = setting(
        "CONSOLE_CLIENT_SECRET", "", "Secret of that client; empty for a public client"
    )
    console_scopes: Text = setting(
        "CONSOLE_SCOPES", "openid", "Scopes that are asked for when people sign in, with spaces"
    )
