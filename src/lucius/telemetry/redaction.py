"""The last guard of the logs: whatever looks like a secret is blotted out before it is written."""

import re
from typing import Final

BLOT: Final = "***"
_NAMES: Final = (
    r"[\w-]*(?:token|secret|passw(?:or)?d|pwd|passphrase|api[_-]?key|account[_-]?key|access[_-]?key"
    r"|private[_-]?key|credentials?|authorization|signature|cookie)"
)
_VALUE: Final = r"\\\".*?\\\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s\"',;&{}\[\]()]+"
_RULES: Final = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.S), BLOT),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {BLOT}"),
    (re.compile(r"//[^/@\s]*@"), f"//{BLOT}@"),
    (re.compile(rf"(?i)(\b{_NAMES}\\?[\"']?\s*[:=]\s*)(?:{_VALUE})"), rf"\1{BLOT}"),
    (re.compile(r"(?i)([?&;](?:sig|sas|key|code|sv|st|se|sp)=)[^\s&;\"']+"), rf"\1{BLOT}"),
    (re.compile(r"\blk_\w+"), f"lk_{BLOT}"),
    (re.compile(r"\bwhsec_[\w+/=]+"), f"whsec_{BLOT}"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), BLOT),
    (re.compile(r"[\w-]+\.[\w-]+\.[\w-]{43}(?![\w-])"), BLOT),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), BLOT),
)
"""Named values, credentials in URLs, and the shapes of keys: API keys, webhook secrets, JWTs and
callback tokens (which end in a MAC of 43 characters)."""


def redacted(text: str) -> str:
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
