"""Credentials files of NATS (`.creds`): a token of a user and the seed of the key that proves it.

The file is read for every connection, so that a new one is used without a restart. Nothing of it is kept.
"""

import base64
import binascii
import re
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lucius.core.errors import BusUnavailableError

_BLOCK: Final = r"-+BEGIN {0}-+\s+([A-Za-z0-9_\-=.]+)\s+-+END {0}-+"
TOKEN: Final = re.compile(_BLOCK.format("NATS USER JWT"))
SEED: Final = re.compile(_BLOCK.format("USER NKEY SEED"))
PREFIX, KEY, CHECKSUM = 2, 32, 2
"""Bytes of a seed: what kind of key it is, the key, and a checksum."""


def credentials(path: str) -> dict[str, Any]:
    """The options of the NATS client. Raises BusUnavailableError if the file cannot be used now."""

    def token() -> bytes:
        return _block(path, TOKEN, "NATS USER JWT").encode()

    def signed(nonce: str) -> bytes:
        return base64.b64encode(_key(path).sign(nonce.encode()))

    token(), _key(path)
    return {"user_jwt_cb": token, "signature_cb": signed}


def _key(path: str) -> Ed25519PrivateKey:
    text = _block(path, SEED, "USER NKEY SEED")
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raw = b""
    if len(raw) != PREFIX + KEY + CHECKSUM:
        raise unusable(path, "its seed is not one of a user")
    return Ed25519PrivateKey.from_private_bytes(raw[PREFIX : PREFIX + KEY])


def _block(path: str, wanted: re.Pattern[str], name: str) -> str:
    try:
        found = wanted.search(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise unusable(path, str(error)) from error
    if found is None:
        raise unusable(path, f"it has no block {name}")
    return found[1]


def unusable(path: str, why: str) -> BusUnavailableError:
    return BusUnavailableError(
        f"LUCIUS_NATS_CREDENTIALS names {path}, which cannot be used: {why}. It takes a credentials file"
        " (.creds) of a NATS user, as `nsc generate creds` writes it, or a certificate in PEM form"
    )
