"""The configuration as key-values: which keys there are, how labels overlay, what they add up to.

It knows nothing of the service that stores them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lucius.adapters.configs.catalogs import Document, checked_document, parse_json
from lucius.core.errors import ProtocolError

PREFIX: Final = "lucius/"
SENTINEL: Final = "lucius/sentinel"
"""Changed last: what was changed before it comes into force together."""
SETTINGS: Final = "lucius/settings/"
DEFAULTS: Final = "lucius/defaults"
STEP_TYPES: Final = "lucius/step_types/"
PROTOCOLS: Final = "lucius/protocols/"
TENANTS: Final = "lucius/tenants/"
KEY_VAULT: Final = "application/vnd.microsoft.appconfig.keyvaultref"


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One stored entry. An empty label is none; `etag` is another one after every change."""

    key: str
    value: str
    label: str = ""
    etag: str = ""
    content_type: str = ""
    changed_at: datetime | None = None

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.key} (label {self.label})" if self.label else self.key


def overlaid(found: Iterable[KeyValue]) -> dict[str, KeyValue]:
    """By key. An entry with a label takes the place of the one without.

    Raises ProtocolError where there is no sentinel: nobody would notice a change.
    """
    both = sorted(found, key=lambda each: (each.key, bool(each.label)))
    entries = {each.key: each for each in both}
    if SENTINEL not in entries:
        raise ProtocolError(
            f"App Configuration has no key {SENTINEL}, neither with the label of LUCIUS_SYSTEM nor"
            " without one: create it with any value, and change it after every change of other keys"
        )
    return entries


def marks_of(found: Iterable[KeyValue]) -> frozenset[tuple[str, str]]:
    """Label and ETag of every sentinel: another answer means that something has changed."""
    return frozenset((each.label, each.etag) for each in found if each.key == SENTINEL)


def behind_sentinel(found: Sequence[KeyValue]) -> list[str]:
    """Keys that were changed after the sentinel: their writer is not done, or forgot the sentinel."""
    times = [each.changed_at for each in found if each.key == SENTINEL and each.changed_at]
    if not times:
        return []
    newest = max(times)
    return [each.name for each in found if each.changed_at and each.changed_at > newest]


def settings_of(entries: Mapping[str, KeyValue]) -> dict[str, str]:
    """The `LUCIUS_*` settings by name. Raises ProtocolError for what is kept elsewhere."""
    found = [each for key, each in entries.items() if key.startswith(SETTINGS)]
    _refuse(f for each in found if (f := _foreign(each)) is not None)
    return {each.key.removeprefix(SETTINGS): each.value for each in found}


def documents_of(entries: Mapping[str, KeyValue]) -> list[Document]:
    """What the keys define, each as a small protocol file. Raises ProtocolError with every fault."""
    documents: list[Document] = []
    faults: list[str] = []
    for key, entry in entries.items():
        if key == SENTINEL or key.startswith(SETTINGS):
            continue
        try:
            documents.append(checked_document(entry.name, _body(entry)))
        except ProtocolError as error:
            faults.append(str(error))
    _refuse(faults)
    return documents


def _refuse(faults: Iterable[str]) -> None:
    found = list(faults)
    if found:
        raise ProtocolError("\n".join(found))


def _foreign(entry: KeyValue) -> str | None:
    if not entry.content_type.startswith(KEY_VAULT):
        return None
    return f"{entry.name}: is a Key Vault reference, which LUCIUS does not follow: store the value"


def _body(entry: KeyValue) -> dict[str, Any]:
    fault = _foreign(entry)
    if fault is not None:
        raise ProtocolError(fault)
    section, _, name = entry.key.removeprefix(PREFIX).partition("/")
    value = parse_json(entry.name, entry.value)
    if not isinstance(value, dict):
        raise ProtocolError(f"{entry.name}: must be a JSON object")
    if entry.key == DEFAULTS:
        return {"defaults": value}
    if section in ("step_types", "tenants") and name:
        return {section: {name: value}}
    if section == "protocols" and name:
        return {"protocols": [_with_id(entry, name, value)]}
    raise ProtocolError(
        f"{entry.name}: no such key. There are {DEFAULTS}, {STEP_TYPES}NAME, {PROTOCOLS}ID,"
        f" {TENANTS}ID, {SETTINGS}LUCIUS_NAME and {SENTINEL}"
    )


def _with_id(entry: KeyValue, name: str, value: dict[str, Any]) -> dict[str, Any]:
    said = value.setdefault("protocol_id", name)
    if said != name:
        raise ProtocolError(f"{entry.name}: its protocol_id is {said}, and its key says {name}")
    return value


# -- the other way ---------------------------------------------------------------------------


def key_values(body: Mapping[str, Any]) -> dict[str, str]:
    """The content of a protocol file as values by key, without the sentinel."""
    return dict(_key_values(body))


def _key_values(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, section in body.get("step_types", {}).items():
        yield STEP_TYPES + name, json.dumps(section)
    for section in body.get("protocols", ()):
        yield PROTOCOLS + section["protocol_id"], json.dumps(section)
    for name, section in body.get("tenants", {}).items():
        yield TENANTS + name, json.dumps(section)
    if "defaults" in body:
        yield DEFAULTS, json.dumps(body["defaults"])
