"""NameList that have a meaning in another version of LUCIUS and none in this one.

Whoever sets one is told so. When something reads a name, it leaves this list and is a setting.
"""

from typing import Final

_TEMPORAL: Final = "jobs do not run on Temporal yet"

RESERVED: Final = {
    "LUCIUS_SERVICEBUS_LANES": "there are always 16 lanes",
    "LUCIUS_SERVICEBUS_REPLY_PREFIX": "reply topics are always global-bus-replies-p0 to p15",
    "LUCIUS_SERVICEBUS_REPLY_SUBSCRIPTION": "the subscription for replies is always lucius-reconciler",
    "LUCIUS_TEMPORAL_ENABLED": _TEMPORAL,
    "LUCIUS_TEMPORAL_ADDRESS": _TEMPORAL,
    "LUCIUS_TEMPORAL_NAMESPACE": _TEMPORAL,
    "LUCIUS_TEMPORAL_TASK_QUEUE": _TEMPORAL,
    "LUCIUS_TEMPORAL_WORKFLOW_EXECUTION_TIMEOUT": _TEMPORAL,
    "LUCIUS_STEP_RESULT_TIMEOUT_SECONDS": _TEMPORAL,
    "LUCIUS_INVOKER_URL": _TEMPORAL,
}
"""Why each does nothing, by variable."""
