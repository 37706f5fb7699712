"""How large things may be, so that a job accepted on one backend fits every other.

Azure Table Storage and Service Bus Standard are the narrowest; the numbers come from them.
"""

import re
from typing import Final

from lucius.contract.envelope import MAX_ESCAPED

PROPERTY_CHARACTERS: Final = 32_768
"""A string property: 64 KiB of UTF-16. Each reference, each step's payload and the unknown
envelope fields are stored as one property each, as JSON."""

ENTITY_BYTES: Final = 1_048_576
ENTITY_HEADROOM: Final = 131_072
"""Left for the columns that LUCIUS writes itself."""
ENVELOPE_CHARACTERS: Final = (ENTITY_BYTES - ENTITY_HEADROOM) // 2
"""What never changes about a job is one entity."""

MESSAGE_BYTES: Final = 262_144
MESSAGE_HEADROOM: Final = 65_536
"""Broker headers and properties, and LUCIUS's own fields: ids, routing, callback URLs, token."""
MESSAGE_ID_CHARACTERS: Final = 128
RESULT_BYTES: Final = 8_448
"""The longest reference of an earlier step that a directive carries (2,048 characters) and its name."""

TRANSACTION_ENTITIES: Final = 100
JOB_ENTITIES: Final = 4
STEP_ENTITIES: Final = 6
"""At most, in one save: its row, outbox entry and execution, and the events of its moves."""

MAX_STEPS: Final = (TRANSACTION_ENTITIES - JOB_ENTITIES) // STEP_ENTITIES
MAX_STAGE_STEPS: Final = 12
"""Steps that run together: a stage starts in one save, with the result that opened it."""
MAX_ATTEMPTS: Final = 20
"""Attempts of a step: the job's row keeps every one."""

MAX_DEPTH: Final = 32
MAX_PAYLOAD_BYTES: Final = 131_072
"""The default for the whole payload; settings may only lower it."""
MAX_SECONDS: Final = 30 * 86_400
"""The longest timeout, lease or wait."""


KEY_CHARACTERS: Final = 512
"""Of a key of Azure Table Storage."""
TENANT_KEY_CHARACTERS: Final = MAX_ESCAPED
"""Of these, for the tenant: the longest key names a line, a moment, a job and a step beside it."""
_UNSAFE_IN_KEYS: Final = re.compile(
    r"[/\\#?|~\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U0001fffe-\U0001ffff]"
)


def escaped_in_key(part: str) -> str:
    """With `~` and the number of each character that a key of Azure Table Storage may not hold."""
    return _UNSAFE_IN_KEYS.sub(lambda found: f"~{ord(found[0]):x};", part)


def tenant_fits(tenant_id: str) -> bool:
    """Whether every backend can name the tenant in its keys."""
    if len(tenant_id) * 8 <= TENANT_KEY_CHARACTERS:  # even if each character is escaped
        return True
    return utf16_length(escaped_in_key(tenant_id).encode()) <= TENANT_KEY_CHARACTERS


def utf16_length(text: bytes) -> int:
    """Characters as Azure counts them, of text in UTF-8."""
    return len(text.decode().encode("utf-16-le")) // 2


def fits_property(text: bytes) -> bool:
    """UTF-8 is never shorter than the count of UTF-16 units, so most texts need no second look."""
    return len(text) <= PROPERTY_CHARACTERS or utf16_length(text) <= PROPERTY_CHARACTERS


def directive_room(earlier_steps: int) -> int:
    """Bytes left in a message for references, payload and unknown fields, if all results are long."""
    return MESSAGE_BYTES - MESSAGE_HEADROOM - earlier_steps * RESULT_BYTES
