"""The stored form of events: one document for all the events of a save.

Fields of a newer version are kept: whoever copies its events to another table copies them whole.
"""

from collections.abc import Sequence
from typing import Final

from lucius.core.effects import Event
from lucius.core.errors import LedgerCorruptError
from lucius.ledgers.stored.json_form import Doc, dumps, extra_of, instant, loads, micros

FIELDS: Final = frozenset(("seq", "type", "at", "step", "attempt", "lease", "moves", "data"))


def encode_events(events: Sequence[Event]) -> bytes:
    return dumps([_event(event) for event in events])


def _event(event: Event) -> Doc:
    doc: Doc = dict(event.extra) if event.extra else {}
    doc |= {"seq": event.seq, "type": event.type, "at": micros(event.at)}
    if event.step_id is not None:
        doc["step"] = event.step_id
    if event.attempt_no is not None:
        doc["attempt"] = event.attempt_no
    if event.lease_id is not None:
        doc["lease"] = event.lease_id
    if event.moves:
        doc["moves"] = event.moves
    if event.data is not None:
        doc["data"] = event.data
    return doc


def decode_events(raw: bytes) -> list[Event]:
    try:
        return [_read_event(doc) for doc in loads(raw)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LedgerCorruptError(f"events are stored wrongly: {error!r}") from error


def _read_event(doc: Doc) -> Event:
    return Event(
        seq=doc["seq"],
        type=doc["type"],
        at=instant(doc["at"]),
        step_id=doc.get("step"),
        attempt_no=doc.get("attempt"),
        lease_id=doc.get("lease"),
        moves=tuple(doc.get("moves", ())),
        data=doc.get("data"),
        extra=extra_of(doc, FIELDS),
    )
