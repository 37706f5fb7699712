"""Numbers and words of the envelope, and of replies. Its fields are those of `models.commands.Command`."""

from typing import Any, Final

JsonObject = dict[str, Any]

SCHEMA_VERSIONS: Final = ("v1", "1", "1.0")
"""Spellings of the one envelope there is. They are kept as given, and the first is hashed for each."""
MODES: Final = ("DEFAULT", "SAFE", "BURST")
MAX_NAME: Final = 128
"""Characters of a tenant id."""
MAX_ESCAPED: Final = 256
"""Characters of a tenant id as storage writes it."""
MAX_TEXT: Final = 256
"""Characters of every other short field."""
MAX_URI: Final = 2048
MAX_CALLBACK_URLS: Final = 8
MAX_ATTEMPT_NO: Final = 2**31 - 1
MAX_SLOTS: Final = 65_536
"""Steps that one worker takes at once."""
ERROR_CODE: Final = r"[A-Z0-9_]{1,64}"
"""Codes are shown beside jobs of others, so they are words of a service, and never free text."""
UNCLASSIFIED: Final = "STEP_FAILED"
"""The code of a failure that names none."""
TRACEPARENT: Final = r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
"""The one rule of what a `traceparent` is, as a pattern for the whole text."""
REASON: Final = "x-lucius-reason"
"""In the schema of a field: what a client is told whose value does not fit."""
