"""The last guard of the logs: it replaces what looks like a secret before a line is written."""

import re
from typing import Final, NamedTuple

BLOT: Final = "***"
MAX_TEXT: Final = 20_000
MAX_ID: Final = 256
CUT: Final = "...[cut]"
_NAMES: Final = (
    r"[\w-]*(?:token|secret|passw(?:or)?d|pwd|passphrase|api[_-]?key|account[_-]?key|access[_-]?key"
    r"|private[_-]?key|credentials?|authorization|signature|cookie)"
)
_VALUE: Final = r"\\\".*?\\\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s\"',;&{}\[\]()]+"


class Rule(NamedTuple):
    """A pattern and its replacement. It is tried only where the text in lower case has one of `hints`."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str = BLOT


_RULES: Final = (
    Rule(
        ("-----begin",),
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.S),
    ),
    Rule(("bearer", "basic"), re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {BLOT}"),
    Rule(("//",), re.compile(r"//[^/@\s]*@"), f"//{BLOT}@"),
    Rule(
        ("token", "secret", "pass", "pwd", "key", "cred", "auth", "signature", "cookie"),
        re.compile(rf"(?i)((?<![\w-]){_NAMES}\\?[\"']?\s*[:=]\s*)(?:{_VALUE})"),
        rf"\1{BLOT}",
    ),
    Rule(
        ("sig=", "sas=", "key=", "code=", "sv=", "st=", "se=", "sp="),
        re.compile(r"(?i)([?&;](?:sig|sas|[\w-]*key|code|sv|st|se|sp)=)[^\s&;\"']+"),
        rf"\1{BLOT}",
    ),
    Rule(("lk_",), re.compile(r"\blk_[\w-]+"), f"lk_{BLOT}"),
    Rule(("whsec_",), re.compile(r"\bwhsec_[\w+/=]+"), f"whsec_{BLOT}"),
    Rule(("eyj",), re.compile(r"\beyJ[\w-]{1,1000}\.[\w-]+\.[\w-]*")),
    Rule((".",), re.compile(r"(?<![\w.-])[\w-]+\.[\w-]+\.[\w-]{43}(?![\w-])")),
    Rule(("akia", "asia"), re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
)
"""Named values, credentials in URLs, and the shapes of keys: API keys, webhook secrets, JWTs and
callback tokens (which end in a MAC of 43 characters)."""


_SEPARATOR: Final = re.compile(r"[\s=:/.]")
_PREFIXES: Final = ("lk_", "whsec_", "AKIA", "ASIA")
"""No rule matches a short text without a separator or a prefix. So ids, which every record has, are quick."""


def redacted(text: str) -> str:
    """The text without secrets, and not longer than the maximum. No text takes more than linear time."""
    if len(text) <= MAX_ID and _SEPARATOR.search(text) is None:
        if not any(prefix in text for prefix in _PREFIXES):
            return text
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + CUT
    lowered = text.lower()
    for hints, pattern, replacement in _RULES:
        if any(hint in lowered for hint in hints):
            text = pattern.sub(replacement, text)
    return text
