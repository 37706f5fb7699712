"""Which pods of the chart read which secret setting: every secret of the settings, and nothing else."""

from typing import Final

from lucius.app.settings.loading import ROWS

CONTROL: Final = ("orchestrator", "reconciler", "invoker")
ON_THE_BUS: Final = (*CONTROL, "service")
ON_TEMPORAL: Final = ("orchestrator", "invoker", "worker")
READERS: Final[dict[str, tuple[str, ...]]] = {
    "LUCIUS_API_KEY": (),
    "LUCIUS_APPCONFIG_CONNECTION": (*CONTROL, "provision"),
    "LUCIUS_TABLE_CONNECTION": (*CONTROL, "provision"),
    "LUCIUS_BLOB_CONNECTION": ON_THE_BUS,
    "LUCIUS_NATS_PASSWORD": ON_THE_BUS,
    "LUCIUS_SERVICEBUS_CONNECTION": (*ON_THE_BUS, "provision"),
    "LUCIUS_CALLBACK_KEYS": CONTROL,
    "LUCIUS_WEBHOOK_SECRET": CONTROL,
    "LUCIUS_CONSOLE_CLIENT_SECRET": ("orchestrator",),
    "LUCIUS_TEMPORAL_API_KEY": ON_TEMPORAL,
    "LUCIUS_INVOKER_SECRET": ON_TEMPORAL,
    "LUCIUS_ANSWER_KEY": (),
}
"""By setting. Empty: only the pods of a service whose values name it (services.NAME.secrets)."""
_HEAD: Final = """# Generated from tools/chart_secrets.py. Do not edit.
# Every secret setting, and the pods that read it. One without pods is read by the services that name it.
"""


def chart_secrets() -> str:
    """YAML. A secret without an entry is an error, and so is an entry that is no secret."""
    secret = {row.env for row in ROWS.values() if row.secret}
    if secret != READERS.keys():
        raise ValueError(f"READERS and the secret settings differ: {secret ^ READERS.keys()}")
    return _HEAD + "".join(f"{env}: [{', '.join(pods)}]\n" for env, pods in READERS.items())
