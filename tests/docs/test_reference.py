"""The reference pages of messages, envelope and protocol files say what the code says."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel

from lucius.adapters.configs.files import FileConfig
from lucius.contract.codes import CODES
from lucius.contract.models.commands import envelope_schema
from lucius.contract.models.messages import (
    AckMessage,
    DirectiveMessage,
    HeartbeatMessage,
    HeartbeatView,
    ReleaseMessage,
    ResultMessage,
)
from lucius.contract.words import SCHEMA_VERSIONS
from lucius.core.references import ReferencePolicy
from lucius.core.wire import directive_properties, parse_reply
from lucius.engine.admission.envelope import KNOWN_FIELDS, EnvelopePolicy, read_envelope
from lucius.engine.admission.faults import Faults
from tests.api.live import live
from tests.contract.fitting import misfits
from tests.docs.blocks import blocks_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {name: (DOCS / f"reference/{name}.md").read_text("utf-8") for name in
         ("messages", "envelope", "protocols")}  # fmt: skip
PASSED_ON = {"tracestate", "overwrite"}
"""Documented, and otherwise treated as a field that LUCIUS does not know."""
SCHEMA = json.loads((ROOT / "src/lucius/adapters/configs/schema.json").read_text())


REPLIES: dict[str, type[BaseModel]] = {
    "ACK": AckMessage,
    "RESULT": ResultMessage,
    "HEARTBEAT": HeartbeatMessage,
    "RELEASE": ReleaseMessage,
}


def examples(page: str, kind: str) -> Iterator[tuple[str, str]]:
    """The blocks of that kind: what their first line says besides, and their text."""
    for block in blocks_of(PAGES[page]):
        _, *words = block.info.split() or [""]
        if words[:1] == [kind]:
            yield " ".join(words[1:]), block.text


def named(page: str, heading: str) -> set[str]:
    """Everything that is named in the first column of the first table below that line."""
    text = f"\n{PAGES[page]}".partition(f"\n{heading}\n")[2]
    table = re.search(r"\n\|[-|]+\|\n((?:\|.*\n)+)", text)
    assert table is not None, heading
    cells = (row.split("|")[1] for row in table[1].splitlines())
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


# -- messages --------------------------------------------------------------------------------


def example_directive() -> dict[str, Any]:
    ((_, text),) = examples("messages", "directive")
    directive: dict[str, Any] = json.loads(text)
    return directive


async def test_a_directive_has_the_fields_that_are_documented_and_no_others(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        await lucius.accepted()
        (directive,) = await lucius.pull()
    example = example_directive()
    assert set(directive) == set(example) == DirectiveMessage.model_fields.keys() - {"pool"}
    assert named("messages", "## The directive") == {*example, "pool"}
    assert misfits(json.dumps(example).encode(), DirectiveMessage) == []
    properties = named(
        "messages", "tenants that have [a pool of their own](../how-to/security.md#tenants):"
    )
    assert {*directive_properties(directive), "pool"} == properties


@pytest.mark.parametrize(("kind", "text"), list(examples("messages", "reply")))
def test_a_documented_reply_is_read_as_what_it_is(kind: str, text: str) -> None:
    body = json.loads(text)
    job_id, received = parse_reply(body)
    assert (job_id, received.kind.value) == ("job_1", kind)
    assert REPLIES[body["type"]].model_validate(body).model_extra in ({}, {"status": "ACKED"})
    assert body.keys() <= {*named("messages", "## Replies"), "status"}


def test_every_kind_of_reply_is_documented() -> None:
    kinds = {kind for kind, _ in examples("messages", "reply")}
    assert kinds == {
        "ack",
        "heartbeat",
        "lease_returned",
        "success",
        "failure_retryable",
        "failure_final",
    }


def test_the_documented_answer_to_a_heartbeat_is_its_shape() -> None:
    ((_, text),) = examples("messages", "answer")
    assert misfits(text.encode(), HeartbeatView) == []


# -- the envelope ----------------------------------------------------------------------------


def test_the_documented_envelope_is_valid_and_shows_every_field() -> None:
    ((_, text),) = examples("envelope", "envelope")
    envelope = json.loads(text)
    found = Faults()
    read_envelope(envelope, None, EnvelopePolicy(ReferencePolicy(), ("https",), ()), found)
    assert not found
    jsonschema_rs.Draft202012Validator(envelope_schema()).validate(envelope)
    assert set(envelope) == set(envelope_schema()["properties"]) == KNOWN_FIELDS | PASSED_ON
    assert named("envelope", "# The envelope") == set(envelope)


def test_every_version_of_the_envelope_is_named() -> None:
    row = next(line for line in PAGES["envelope"].splitlines() if "| `schema_version` |" in line)
    assert {f"`{version}`" for version in SCHEMA_VERSIONS} <= set(re.findall("`[^`]+`", row))
    known = CODES["UNSUPPORTED_SCHEMA_VERSION"]
    assert all(f"`{version}`" in known.explanation + known.action for version in SCHEMA_VERSIONS)


# -- protocol files --------------------------------------------------------------------------


def test_the_documented_protocol_file_loads(tmp_path: Path) -> None:
    ((_, text),) = examples("protocols", "protocols")
    (tmp_path / "protocols.yaml").write_text(text)
    (protocol,) = FileConfig(tmp_path).catalog().protocols.values()
    assert [(step.step_id, step.stage) for step in protocol.steps] == [
        ("ocr", 1),
        ("classify", 2),
        ("redact-names", 2),
    ]
    leases = [step.policy.lease.total_seconds() for step in protocol.steps]
    assert leases == [1800, 60, 900]


def test_every_field_of_a_protocol_file_is_documented() -> None:
    defs = SCHEMA["$defs"]
    policy = set(defs["policy"]["properties"])
    assert named("protocols", "## `step_types`") == set(defs["step_type"]["properties"]) | policy
    assert named("protocols", "## `protocols`") == set(defs["protocol"]["properties"])
    assert named("protocols", "A step as an object:") == set(defs["step"]["properties"]) | policy
    tenants = SCHEMA["properties"]["tenants"]["additionalProperties"]["properties"]
    defaults = SCHEMA["properties"]["defaults"]["properties"]
    assert named("protocols", "## `defaults` and `tenants`") == {*tenants, *defaults}
    assert set(SCHEMA["properties"]) <= set(re.findall(r"`(\w+)`", PAGES["protocols"]))
