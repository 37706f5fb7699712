"""Secrets of an embedded deployment: given by the settings, or made once in the data directory."""

import base64
import contextlib
import os
import secrets
from pathlib import Path

from lucius.settings import Settings


def callback_keys(settings: Settings) -> dict[str, bytes]:
    """From the settings, or one that is made once in the data directory."""
    if settings.callback_keys:
        pairs = (entry.split(":", 1) for entry in settings.callback_keys)
        return {key_id: secret.encode() for key_id, secret in pairs}
    return {"k1": made_once(settings.data_dir / "callback.key")}


def webhook_secret(settings: Settings) -> str:
    if settings.webhook_secret:
        return settings.webhook_secret
    return base64.b64encode(made_once(settings.data_dir / "webhook.key")).decode()


def made_once(path: Path) -> bytes:
    """A random secret in a file that only its owner can read."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_hex(32).encode())
            file.flush()
            os.fsync(file.fileno())
    return path.read_bytes()
