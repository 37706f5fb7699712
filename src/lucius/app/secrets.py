"""Secrets of an embedded deployment: given by the settings, or made once in the data directory."""

import base64
import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from lucius.app.settings import Settings
from lucius.core.errors import LuciusError
from lucius.system.machine import private_folder

LEAST_BYTES: Final = 32
"""Of what is in the file: an empty or cut one is no secret."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class SecretMissingError(LuciusError):
    """Processes that share a ledger would not accept each other's tokens."""


class SecretTooShortError(LuciusError):
    """The file of a secret does not hold one."""


class SecretKnownError(LuciusError):
    """Another user has put the file of a secret there, and knows what it holds."""


def check_shared_secrets(settings: Settings) -> None:
    """Where processes share a ledger, each must accept what the others have signed."""
    if not settings.shared:
        return
    given = {
        "LUCIUS_CALLBACK_KEYS": settings.callback_keys,
        "LUCIUS_WEBHOOK_SECRET": settings.webhook_secret,
    }
    missing = [name for name, value in given.items() if not value]
    if missing:
        raise SecretMissingError(
            f"LUCIUS_STORAGE_BACKEND={settings.storage_backend} is shared by processes, so all of them"
            f" need the same {' and '.join(missing)}: set it, or NAME_FILE to a file that holds it"
        )


def callback_keys(settings: Settings) -> dict[str, bytes]:
    """From the settings, or one that is made once in the data directory."""
    if settings.callback_keys:
        keys = settings.callback_keys.items()
        return {key_id: secret.get_secret_value().encode() for key_id, secret in keys}
    return {"k1": made_once(settings.data_dir / "callback.key")}


def webhook_secret(settings: Settings) -> str:
    if settings.webhook_secret:
        return settings.webhook_secret.get_secret_value()
    return base64.b64encode(made_once(settings.data_dir / "webhook.key")).decode()


def made_once(path: Path) -> bytes:
    """A random secret in a file that only its owner can read.

    Raises SecretTooShortError, and SecretKnownError.
    """
    private_folder(path.parent)
    if not path.exists():
        _make(path)
    _check_owner(path)
    secret = path.read_bytes()
    if len(secret) < LEAST_BYTES:
        raise SecretTooShortError(
            f"{path} holds {len(secret)} bytes, and a secret has at least {LEAST_BYTES}:"
            " restore it, or delete it to have a new one made"
        )
    return secret


def _check_owner(path: Path) -> None:
    """A file of somebody else that can be read here is open: whoever prepared the folder knows it."""
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0) and found.st_mode & _OTHERS:
        raise SecretKnownError(
            f"{path} belongs to another user (id {found.st_uid}), who knows this secret: give --data"
            " (LUCIUS_DATA_DIR) a directory of your own, or delete the file to have a new one made"
        )


def _make(path: Path) -> None:
    """It appears whole or not at all; if two make it at once, the first one's counts."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_hex(LEAST_BYTES).encode())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
