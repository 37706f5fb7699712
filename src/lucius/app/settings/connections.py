"""Settings of what LUCIUS stands on: configuration, storage, bus, and the API that writes answers."""

from pathlib import Path
from typing import Any, Final, Literal

from lucius.app.settings.kinds import (
    AgeOrNone,
    LedgerName,
    NameList,
    SecondsOrNone,
    Secret,
    Section,
    Text,
    TopologyList,
    Url,
    setting,
)

# Settings of the Temporal engine.


class Temporal(Section):
    """Temporal"""

    temporal_enabled: bool = setting(
        "TEMPORAL_ENABLED",
        "false",
        "Whether new jobs run on Temporal. A job stays on the engine that it began with",
    )
    temporal_address: Text = setting(
        "TEMPORAL_ADDRESS", "127.0.0.1:7233", "Host and port of the Temporal server"
    )
    temporal_namespace: Text = setting("TEMPORAL_NAMESPACE", "default", "Its namespace for jobs")
    temporal_task_queue: Text = setting(
        "TEMPORAL_TASK_QUEUE", "lucius", "Task queue that workers take workflows from"
    )
    temporal_ca: Text = setting(
        "TEMPORAL_CA",
        "",
        "File with the certificates of the authorities that the Temporal server is checked by; with it the"
        " connection is encrypted. Empty: those of the system",
    )
    temporal_certificate: Text = setting(
        "TEMPORAL_CERTIFICATE",
        "",
        "File with the certificate that this process shows to the Temporal server, which may ask for one. Its"
        " private key is in the same file, or beside it in one that ends with .key (tls.crt, tls.key)",
    )
    temporal_api_key: Secret = setting(
        "TEMPORAL_API_KEY",
        "",
        "API key that the Temporal server is sent; with it the connection is encrypted",
    )
    temporal_workflow_execution_timeout: SecondsOrNone = setting(
        "TEMPORAL_WORKFLOW_EXECUTION_TIMEOUT",
        "none",
        "How many seconds the workflow of a job may run in all; then the job fails with"
        " `WORKFLOW_TIMEOUT`. none: as long as it takes",
    )
    step_result_timeout: SecondsOrNone = setting(
        "STEP_RESULT_TIMEOUT_SECONDS",
        "none",
        "Lease of a step of a job on Temporal; none: LUCIUS_LEASE_SECONDS",
    )
    invoker_url: NameList = setting(
        "INVOKER_URL",
        "http://127.0.0.1:8710",
        "Where workers and orchestrators reach the internal API of the invoker; several with commas are"
        " called in turn, and one that is away is passed over",
    )
    invoker_secret: Secret = setting(
        "INVOKER_SECRET",
        "",
        "Secret by which the invoker knows its callers; without one it listens on loopback only",
    )


PACKAGED: Final = "packaged"
"""In LUCIUS_PROTOCOLS, the protocols that come with LUCIUS."""


def _workspace(others: dict[str, Any]) -> str:
    return (Path(others["data_dir"]).absolute() / "workspace").as_uri()


def _provision(others: dict[str, Any]) -> str:
    return "check" if others["bus_backend"] == "servicebus" else "auto"


class Configuration(Section):
    """Protocols and configuration"""

    config_source: Literal["files", "appconfig"] = setting(
        "CONFIG_SOURCE", "files", "Where protocols, tenant overrides and defaults come from"
    )
    protocols: NameList = setting(
        "PROTOCOLS",
        PACKAGED,
        "Files and directories of protocols; `packaged` stands for those that come with LUCIUS",
    )
    appconfig_connection: Secret = setting(
        "APPCONFIG_CONNECTION",
        "",
        "Azure App Configuration: connection string, or endpoint for the identity of the process. Where"
        " it is set, settings are read there too",
    )


class Storage(Section):
    """Storage"""

    storage_backend: LedgerName = setting(
        "STORAGE_BACKEND",
        "sqlite",
        "The ledger: embedded, in memory, in one Azure table, or in separate Azure tables",
    )
    retention: AgeOrNone = setting(
        "RETENTION",
        "none",
        "How long jobs are kept after their end; then the server deletes them and their workspaces."
        " What is in the dead-letter view stays until it is redriven or dismissed",
    )
    table_connection: Secret = setting(
        "TABLE_CONNECTION",
        "",
        "Azure Table Storage: connection string, or account URL for the identity of the process",
    )
    ledger_table: Text = setting(
        "LEDGER_TABLE",
        "lucius_ledger",
        "The one table of backend `ledger`. What Azure forbids in table names is dropped",
    )
    jobs_table: Text = setting(
        "JOBS_TABLE",
        "lucius_jobs",
        "Table of jobs of backend `table`. Those of outbox entries and events have the same name, with"
        " `outbox` and `events` in place of `jobs`",
    )
    steps_table: Text = setting("STEPS_TABLE", "lucius_steps", "Table of steps of backend `table`")
    idempotency_table: Text = setting(
        "IDEMPOTENCY_TABLE", "job-idempotency", "Table of each tenant's claims, lists and counts"
    )
    job_index_table: Text = setting(
        "JOB_INDEX_TABLE", "job-index", "Table of what is due and ready on each lane"
    )
    inflight_table: Text = setting(
        "INFLIGHT_TABLE",
        "job-inflight",
        "Table of lane leases, what is in flight on the lanes, and API keys",
    )
    service_records_table: Text = setting(
        "SERVICE_RECORDS_TABLE",
        "",
        "Azure table, in the account of LUCIUS_TABLE_CONNECTION, in which `lucius service run` records what"
        " was begun and done. Empty: in the workspace of each job",
    )
    workspace_url: Url = setting(
        "WORKSPACE_URL",
        _workspace,
        "Base URI of the workspaces: file:///PATH, s3://BUCKET/PATH, gs://BUCKET/PATH, or az://CONTAINER/PATH"
        " in Azure Blob",
        shown="`workspace` in LUCIUS_DATA_DIR",
    )
    workspace_files: Literal["all", "final"] = setting(
        "WORKSPACE_FILES",
        "all",
        "Which small outputs (up to 64 KiB) of a local workspace are files. `all`: every one. `final`:"
        " the one at `output_ref` alone, which is quicker; `lucius job files` and services on the kit read"
        " the others",
    )
    blob_connection: Secret = setting(
        "BLOB_CONNECTION",
        "",
        "Azure Blob: connection string, or account URL for the identity of the process. Where it is"
        " set, services read and write az, abfs and abfss references, and https ones of that account",
    )
    s3_endpoint: Url = setting(
        "S3_ENDPOINT",
        "",
        "URL of the server that s3 references lead to, such as https://minio.example:9000. Empty: what"
        " AWS_ENDPOINT_URL says, or else Amazon's",
    )
    gcs_endpoint: Url = setting(
        "GCS_ENDPOINT",
        "",
        "URL of the server that gs references lead to. Empty: what STORAGE_EMULATOR_HOST says, or else"
        " Google's",
    )


class BusAndRouting(Section):
    """Bus and routing"""

    bus_backend: Literal["memory", "nats", "servicebus"] = setting(
        "BUS_BACKEND", "memory", "Bus that carries directives and replies"
    )
    bus_provision: Literal["auto", "check"] = setting(
        "BUS_PROVISION",
        _provision,
        "`auto`: a process creates the topics and subscriptions that it needs. `check`: it names those"
        " that are missing, and `lucius bus provision` creates them",
        shown="`check` on servicebus, else `auto`",
    )
    nats_url: Text = setting(
        "NATS_URL",
        "nats://127.0.0.1:4222",
        "NATS servers, comma-separated. With tls:// the connection is encrypted; the standard variable"
        " SSL_CERT_FILE names authorities other than those of the system",
    )
    nats_credentials: NameList = setting(
        "NATS_CREDENTIALS",
        "",
        "Files by which NATS servers know this process: a credentials file (.creds), which is read for every"
        " connection; a certificate, whose private key is in the same file, or beside it in one that ends"
        " with .key (tls.crt, tls.key); or both",
    )
    nats_password: Secret = setting(
        "NATS_PASSWORD",
        "",
        "Password of the user that LUCIUS_NATS_URL names (nats://USER@HOST). Where it names none, a token",
    )
    servicebus_connection: Secret = setting(
        "SERVICEBUS_CONNECTION", "", "Azure Service Bus: connection string or namespace"
    )
    servicebus_prefix: Text = setting(
        "SERVICEBUS_PREFIX",
        "",
        "What the names of topics begin with on Service Bus: each deployment that shares a namespace with"
        " another has its own, such as `test-`",
    )
    lane_topologies: TopologyList = setting(
        "LANE_TOPOLOGY",
        "shared",
        "`shared`: one grid of topics. `isolated`: one grid for each mode. `filtered`: one grid, and two"
        " subscriptions a service, `<service>-default` and `<service>-burst`, that share its slots. New jobs"
        " use the first that is named; live jobs keep theirs, so on Service Bus name it behind the new one"
        " until they have ended. On other buses the topics of all are listened on",
    )
    routing_delimiter: Text = setting(
        "ROUTING_DELIMITER",
        "",
        "Text between tenant and document in a BURST routing key; only for new deployments",
    )


class Answers(Section):
    """Answers of the packaged SIS service"""

    answer_url: Url = setting(
        "ANSWER_URL",
        "",
        "Base URL of an OpenAI-compatible API that writes the answers, such as"
        " http://127.0.0.1:8080/v1; it is sent the prompts and the passages that fit them. Empty: the"
        " best sentence is the answer",
    )
    answer_model: Text = setting("ANSWER_MODEL", "", "Model that this API is asked for")
    answer_key: Secret = setting("ANSWER_KEY", "", "Key that this API is sent")
