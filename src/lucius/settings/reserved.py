"""Names that have a meaning in another version of LUCIUS and none in this one.

Whoever sets one is told so. When something reads a name, it leaves this list and is a setting.
"""

from typing import Final

RESERVED: Final = {
    "LUCIUS_SERVICEBUS_LANES": "there are always 16 lanes",
    "LUCIUS_SERVICEBUS_REPLY_PREFIX": "reply topics are always global-bus-replies-p0 to p15",
    "LUCIUS_SERVICEBUS_REPLY_SUBSCRIPTION": "replies come to lucius-reconciler or lucius-invoker",
}
"""Why each does nothing, by variable."""
