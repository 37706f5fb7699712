"""Settings of what LUCIUS stands on: configuration, storage, bus and Temporal."""
# ruff: noqa: RUF009 - `setting` makes a dataclass field

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from lucius.core.routing import LANES, TOPOLOGIES
from lucius.settings.kinds import (
    AGE,
    AGE_OR_NONE,
    FLAG,
    NAMES,
    SECONDS,
    SECONDS_OR_NONE,
    TEXT,
    URL,
    fixed,
    one_of,
    setting,
    show,
    whole,
)

PACKAGED: Final = "packaged"
"""In LUCIUS_PROTOCOLS, the protocols that come with LUCIUS."""


def _workspace(others: Mapping[str, Any]) -> str:
    return (Path(others["data_dir"]).absolute() / "workspace").as_uri()


def _provision(others: Mapping[str, Any]) -> str:
    return "check" if others["bus_backend"] == "servicebus" else "auto"


def _lease(others: Mapping[str, Any]) -> str:
    return show(others["lease"])


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Protocols and configuration"""

    config_source: str = setting(
        "CONFIG_SOURCE",
        one_of("files", "appconfig"),
        "files",
        "Where protocols, tenant overrides and defaults come from",
    )
    protocols: tuple[str, ...] = setting(
        "PROTOCOLS",
        NAMES,
        PACKAGED,
        "Files and directories of protocols; `packaged` stands for those that come with LUCIUS",
    )
    config_refresh: timedelta = setting(
        "CONFIG_REFRESH_SECONDS",
        SECONDS,
        "5",
        "How often the configuration is looked at for changes",
    )
    appconfig_connection: str = setting(
        "APPCONFIG_CONNECTION",
        TEXT,
        "",
        "Azure App Configuration: connection string or endpoint",
        secret=True,
    )


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Storage"""

    storage_backend: str = setting(
        "STORAGE_BACKEND",
        one_of("sqlite", "memory", "ledger", "table"),
        "sqlite",
        "The ledger: embedded, in memory, in one Azure table, or in separate Azure tables",
    )
    retention: timedelta | None = setting(
        "RETENTION",
        AGE_OR_NONE,
        "none",
        "How long jobs are kept after their end; then the server deletes them and their workspaces."
        " What is in the dead-letter view stays until it is redriven or dismissed",
    )
    table_connection: str = setting(
        "TABLE_CONNECTION",
        TEXT,
        "",
        "Azure Table Storage: connection string or account URL",
        secret=True,
    )
    ledger_table: str = setting(
        "LEDGER_TABLE",
        TEXT,
        "lucius_ledger",
        "The one table of backend `ledger`. What Azure forbids in table names is dropped",
    )
    jobs_table: str = setting("JOBS_TABLE", TEXT, "lucius_jobs", "Table of jobs of backend `table`")
    steps_table: str = setting(
        "STEPS_TABLE", TEXT, "lucius_steps", "Table of steps of backend `table`"
    )
    outbox_table: str = setting(
        "OUTBOX_TABLE", TEXT, "lucius_outbox", "Table of outbox entries of backend `table`"
    )
    events_table: str = setting(
        "EVENTS_TABLE", TEXT, "lucius_events", "Table of events of backend `table`"
    )
    idempotency_table: str = setting(
        "IDEMPOTENCY_TABLE", TEXT, "job-idempotency", "Table of idempotency claims"
    )
    job_index_table: str = setting(
        "JOB_INDEX_TABLE", TEXT, "job-index", "Table of the due, ready and list indexes"
    )
    inflight_table: str = setting(
        "INFLIGHT_TABLE", TEXT, "job-inflight", "Table of live jobs per tenant"
    )
    workspace_url: str = setting(
        "WORKSPACE_URL",
        URL,
        _workspace,
        "Base URI of the workspaces",
        shown="`workspace` in LUCIUS_DATA_DIR",
    )


@dataclass(frozen=True, kw_only=True)
class BusAndRouting:
    """Bus and routing"""

    bus_backend: str = setting(
        "BUS_BACKEND",
        one_of("memory", "nats", "servicebus"),
        "memory",
        "Bus that carries directives and replies",
    )
    bus_provision: str = setting(
        "BUS_PROVISION",
        one_of("auto", "check"),
        _provision,
        "Whether a process creates the topics and subscriptions that it needs, or names what is missing."
        " `lucius bus provision` creates them",
        shown="`check` on servicebus, else `auto`",
    )
    nats_url: str = setting(
        "NATS_URL", TEXT, "nats://127.0.0.1:4222", "NATS servers, comma-separated"
    )
    servicebus_connection: str = setting(
        "SERVICEBUS_CONNECTION",
        TEXT,
        "",
        "Azure Service Bus: connection string or namespace",
        secret=True,
    )
    servicebus_lock: timedelta = setting(
        "SERVICEBUS_LOCK_SECONDS",
        SECONDS,
        "60",
        "How long a message is locked for its receiver. Long enough for an ACK and a record, because a"
        " step is settled when it begins; short enough that a dead process's messages come back soon",
    )
    servicebus_max_deliveries: int = setting(
        "SERVICEBUS_MAX_DELIVERIES",
        whole(1, 2000),
        "50",
        "Deliveries before a message is set aside. More than Azure's 10: messages that come for a full"
        " process are given back, and locks that run out in an outage count too",
    )
    servicebus_duplicate_window: timedelta | None = setting(
        "SERVICEBUS_DUPLICATE_WINDOW_SECONDS",
        SECONDS_OR_NONE,
        "120",
        "How long a topic drops messages with an id that it has seen. A publish whose outcome is unknown"
        " is repeated within seconds; a longer window costs throughput. Set only when a topic is created",
    )
    servicebus_expiry: timedelta = setting(
        "SERVICEBUS_EXPIRY",
        AGE,
        "14d",
        "How long an unread message is kept; then it is a dead letter. Longer than any outage that jobs"
        " should outlive",
    )
    servicebus_reply_prefix: str = setting(
        "SERVICEBUS_REPLY_PREFIX",
        fixed("global-bus-replies-p"),
        "global-bus-replies-p",
        "Names of the reply topics, before the lane",
    )
    servicebus_reply_subscription: str = setting(
        "SERVICEBUS_REPLY_SUBSCRIPTION", TEXT, "lucius-invoker", "Subscription on every reply topic"
    )
    servicebus_lanes: str = setting(
        "SERVICEBUS_LANES", fixed(str(LANES)), str(LANES), "Number of lanes"
    )
    lane_topology: str = setting(
        "LANE_TOPOLOGY",
        one_of(*TOPOLOGIES),
        "shared",
        "`shared`: one grid of topics. `isolated`: one for each mode. `filtered`: one grid, and two"
        " subscriptions a service, `<service>-default` and `<service>-burst`, that share its slots",
    )
    routing_delimiter: str = setting(
        "ROUTING_DELIMITER",
        TEXT,
        "",
        "Between tenant and document in a BURST routing key; only for new deployments",
    )


@dataclass(frozen=True, kw_only=True)
class Temporal:
    """Temporal"""

    temporal_enabled: bool = setting(
        "TEMPORAL_ENABLED", FLAG, "false", "Whether new jobs run on Temporal"
    )
    temporal_address: str = setting("TEMPORAL_ADDRESS", TEXT, "localhost:7233", "Temporal server")
    temporal_namespace: str = setting("TEMPORAL_NAMESPACE", TEXT, "default", "Temporal namespace")
    temporal_task_queue: str = setting("TEMPORAL_TASK_QUEUE", TEXT, "lucius", "Temporal task queue")
    temporal_workflow_execution_timeout: timedelta | None = setting(
        "TEMPORAL_WORKFLOW_EXECUTION_TIMEOUT",
        SECONDS_OR_NONE,
        "none",
        "Longest life of a workflow, in seconds",
    )
    step_result_timeout: timedelta = setting(
        "STEP_RESULT_TIMEOUT_SECONDS",
        SECONDS,
        _lease,
        "The lease of a step under Temporal",
        shown="LUCIUS_LEASE_SECONDS",
    )
    invoker_url: str = setting(
        "INVOKER_URL", URL, "http://127.0.0.1:8701", "Base URL of the invoker's internal API"
    )


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers of the packaged SIS service"""

    answer_url: str = setting(
        "ANSWER_URL",
        URL,
        "",
        "Base URL of an OpenAI-compatible API that writes the answers, such as"
        " http://127.0.0.1:8080/v1; it is sent the prompts and the passages that fit them. Empty: the"
        " best sentence is the answer",
    )
    answer_model: str = setting("ANSWER_MODEL", TEXT, "", "Model that this API is asked for")
    answer_key: str = setting("ANSWER_KEY", TEXT, "", "Key that this API is sent", secret=True)
