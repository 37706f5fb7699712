"""A bad protocol file stops the start: the error names the file, the place and the reason."""

from pathlib import Path

import pytest

from lucius.adapters.configs.files import FileConfig
from lucius.core.errors import ProtocolError
from lucius.core.limits import MAX_STAGE_STEPS, MAX_STEPS

GOOD = """
step_types:
  A: {service: a}
"""


def protocol(steps: str, more: str = "") -> str:
    return f"{GOOD}protocols:\n  - {{request_type: X, protocol_id: x, steps: {steps}}}\n{more}"


def many(count: int, stage: str = "") -> str:
    steps = ", ".join(f"{{type: A, id: s{index}{stage}}}" for index in range(count))
    return protocol(f"[{steps}]")


def step_type(section: str) -> str:
    return protocol("[A]").replace("{service: a}", section)


BAD = {
    "broken yaml": ("protocols: [", "", "not valid YAML"),
    "not an object": ("- a\n- b", "/", "object"),
    "a misspelt section": (protocol("[A]", "protokols: []"), "/", "protokols"),
    "a key twice": (
        protocol("[A]", "defaults: {mode: SAFE, mode: BURST}"),
        "",
        "mode is there twice",
    ),
    "nothing at all": ("", "/protocols", "no protocol is defined"),
    "no steps": (protocol("[]"), "/protocols/0/steps", "item"),
    "no protocol id": (
        f"{GOOD}protocols: [{{request_type: X, steps: [A]}}]",
        "/protocols/0",
        "protocol_id",
    ),
    "an unknown step type": (protocol("[A, B]"), "/protocols/0/steps/1", "no step type B"),
    "a misspelt step key": (
        protocol("[{type: A, stagee: 1}]"),
        "/protocols/0/steps/0",
        "stagee",
    ),
    "a step id twice": (protocol("[A, A]"), "/protocols/0/steps", "step id a is there twice"),
    "a place of two steps": (
        protocol("[{type: A, id: b}, {type: A, id: c}, {type: B, id: d}]").replace(
            "{service: a}", "{service: a}\n  B: {service: b}"
        ),
        "/protocols/0/steps",
        "the step b would write where another does: give it another id",
    ),
    "a place of two steps where case does not count": (
        protocol("[{type: A, id: b}, {type: A, id: B}]"),
        "/protocols/0/steps",
        "the step B would write where another does",
    ),
    "stages out of order": (
        protocol("[{type: A, id: b, stage: 2}, {type: A, stage: 1}]"),
        "/protocols/0/steps/1/stage",
        "order of their stages",
    ),
    "too many steps": (many(MAX_STEPS + 1), "/protocols/0/steps", f"at most {MAX_STEPS} steps"),
    "too many together": (
        many(MAX_STAGE_STEPS + 1, ", stage: 1"),
        "/protocols/0/steps",
        f"more than {MAX_STAGE_STEPS} steps",
    ),
    "a request type twice": (
        protocol("[A]", "  - {request_type: ' X ', protocol_id: y, steps: [A]}"),
        "/protocols/1/request_type",
        "request type X is already defined in",
    ),
    "a protocol id twice": (
        protocol("[A]", "  - {request_type: Y, protocol_id: x, steps: [A]}"),
        "/protocols/1/protocol_id",
        "protocol x is already defined in",
    ),
    "an empty part of a request type": (
        protocol("[A]").replace("request_type: X", "request_type: X->"),
        "/protocols/0/request_type",
        "joined by",
    ),
    "no service": (step_type("{}"), "/step_types/A", "service"),
    "a bad service name": (step_type("{service: 'a b'}"), "/step_types/A/service", "match"),
    "a negative duration": (
        step_type("{service: a, lease_seconds: -1}"),
        "/step_types/A/lease_seconds",
        "minimum",
    ),
    "an infinite duration": (step_type("{service: a, lease_seconds: .inf}"), "", "not valid JSON"),
    "a duration in words": (
        step_type("{service: a, ack_timeout_seconds: 30s}"),
        "/step_types/A/ack_timeout_seconds",
        "number",
    ),
    "no waits": (
        step_type("{service: a, ack_backoff_seconds: []}"),
        "/step_types/A/ack_backoff_seconds",
        "item",
    ),
    "no attempts": (
        step_type("{service: a, max_attempts: 0}"),
        "/step_types/A/max_attempts",
        "minimum",
    ),
    "a schema that is none": (
        step_type("{service: a, payload_schema: {properties: {x: {type: strin}}}}"),
        "/step_types/A/payload_schema/properties/x/type",
        "strin",
    ),
    "a schema from elsewhere": (
        step_type("{service: a, payload_schema: {$ref: 'https://example.com/s.json'}}"),
        "/step_types/A/payload_schema",
        "example.com",
    ),
    "an unknown mode": (protocol("[A]", "defaults: {mode: FAST}"), "/defaults/mode", "FAST"),
    "a tenant that bursts but may not": (
        protocol("[A]", "tenants: {a/b: {mode: BURST, burst_allowed: false}}"),
        "/tenants/a~1b/mode",
        "burst_allowed is false",
    ),
    "a default that nobody may use": (
        protocol("[A]", "defaults: {mode: BURST, burst_allowed: false}"),
        "/defaults/mode",
        "burst_allowed is false",
    ),
    "a negative limit": (
        protocol("[A]", "tenants: {a: {max_inflight: -1}}"),
        "/tenants/a/max_inflight",
        "minimum",
    ),
}


@pytest.mark.parametrize(("text", "pointer", "reason"), BAD.values(), ids=BAD)
def test_a_bad_file_is_named_with_place_and_reason(
    tmp_path: Path, text: str, pointer: str, reason: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ProtocolError) as raised:
        FileConfig(tmp_path)
    message = str(raised.value)
    assert f"{pointer}: " in message
    assert reason in message
    assert str(path) in message or text == ""


def test_every_fault_of_every_file_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(step_type("{service: a, lease_seconds: 0, max_attempts: 0}"))
    (tmp_path / "b.json").write_text('{"tenants": {"t": 1}, "tenants": {}}')
    with pytest.raises(ProtocolError) as raised:
        FileConfig(tmp_path)
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    assert "lease_seconds" in lines[0] or "lease_seconds" in lines[1]
    assert "the key tenants is there twice" in lines[2]


def test_the_same_name_in_two_files_names_both(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(protocol("[A]"))
    with pytest.raises(ProtocolError, match=r"two\.yaml:3: /step_types/A: .* in .*one\.yaml"):
        FileConfig(tmp_path)


def test_a_missing_place_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="nowhere"):
        FileConfig(tmp_path / "nowhere")
    with pytest.raises(ProtocolError, match="no protocol files"):
        FileConfig(tmp_path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProtocolError, match=r"x\.yaml: cannot be read"):
        FileConfig(tmp_path)


def test_limits_allow_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(many(MAX_STEPS))
    assert len(FileConfig(tmp_path).catalog().protocols["X"].steps) == MAX_STEPS
    (tmp_path / "x.yaml").write_text(many(MAX_STAGE_STEPS, ", stage: 1"))
    assert {s.stage for s in FileConfig(tmp_path).catalog().protocols["X"].steps} == {1}
