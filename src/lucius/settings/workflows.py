"""Settings of the Temporal engine."""

from lucius.settings.declaring import Section, setting
from lucius.settings.kinds import NameList, SecondsOrNone, Secret, Text


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
