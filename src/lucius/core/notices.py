"""Notices: what LUCIUS tells the worker that holds a lease, without being asked.

A notice carries proofs that its sender could have made the callback token of the attempt. It does not
carry the token itself, so whoever reads a notice cannot answer for the worker.
"""

import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lucius.core.ids import new_lease_id
from lucius.core.wire import message_id

CANCEL: Final = "CANCEL"
"""The job is being cancelled: stop when you can, and say how it ended."""
LEASE_ENDED: Final = "LEASE_ENDED"
"""The lease counts no more: stop, commit nothing, say nothing."""
NOTICES: Final = (CANCEL, LEASE_ENDED)
_BOUND: Final = ("jobId", "stepId", "attempt_no", "lease_id")
_MOST_PROOFS: Final = 16

Notice = tuple[str, dict[str, Any], dict[str, str | int]]
"""Id, body and properties of a message."""


def notice(kind: str, attempt: tuple[str, str, int, str], tokens: Iterable[str]) -> Notice:
    """`tokens`: the callback token of the attempt under every key that may have signed it.

    Each has an id of its own: one that is sent again is no duplicate of one that was lost.
    """
    bound: dict[str, Any] = dict(zip(_BOUND, attempt, strict=True))
    proofs = [proof(token, kind) for token in tokens]
    return (
        message_id(*attempt, f"{kind}:{new_lease_id()}"),
        {"type": kind, **bound, "proofs": proofs},
        {"type": kind, **bound},
    )


def proof(token: str, kind: str) -> str:
    return hmac.new(token.encode(), kind.encode(), "sha256").hexdigest()


def same_attempt(said: Mapping[str, Any], directive: Mapping[str, Any]) -> bool:
    return all(said.get(name) == directive.get(name) for name in _BOUND)


def proven(said: Mapping[str, Any], token: Any) -> bool:
    """Whether LUCIUS made the notice. An attempt without a token is known by its lease id alone."""
    if not isinstance(token, str):
        return True
    proofs, kind = said.get("proofs"), said.get("type")
    if not isinstance(proofs, list) or kind not in NOTICES:
        return False
    expected = proof(token, str(kind)).encode()
    return any(hmac.compare_digest(str(one).encode(), expected) for one in proofs[:_MOST_PROOFS])
