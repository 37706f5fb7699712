"""The packaged step schemas take what the services take; every request type runs on them."""

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from lucius.platform import InvalidPayloadError
from lucius.platform.service import parse_payload
from lucius.services import LIBRARIES
from tests.api.live import live
from tests.services.stage import SAMPLE, packaged

SERVICES = {service.step_types[0]: service for service in packaged()}
STEPS = yaml.safe_load((files("lucius.adapters.configs") / "protocols/steps.yaml").read_text())[
    "step_types"
]
PROMPT = {"id": "a", "prompt": "Who?", "answer": "json"}


def taken_by_service(step_type: str, payload: dict[str, Any]) -> bool:
    try:
        parse_payload(SERVICES[step_type].payload_model, payload)
    except InvalidPayloadError:
        return False
    return True


@pytest.mark.parametrize(
    ("step_type", "payload", "taken"),
    [
        ("OCR", {}, True),
        ("OCR", {"pages": 3, "language": "en", "unknown": True}, True),
        ("OCR", {"pages": "1-3,7"}, True),
        ("OCR", {"pages": 0}, False),
        ("OCR", {"pages": "1-"}, False),
        ("OCR", {"pages": "٣"}, False),
        ("OCR", {"pages": 1.5}, False),
        ("OCR", {"language": 1}, False),
        ("EMBEDDING", {}, True),
        ("EMBEDDING", {"chunk_size": 16, "overlap": 0, "dimensions": 64}, True),
        ("EMBEDDING", {"chunk_size": 15}, False),
        ("EMBEDDING", {"chunk_size": 8193}, False),
        ("EMBEDDING", {"overlap": -1}, False),
        ("EMBEDDING", {"dimensions": 100}, False),
        ("SIS", {"prompt_set": ["Who?", PROMPT, {"prompt": "What?"}]}, True),
        ("SIS", {}, False),
        ("SIS", {"prompt_set": []}, False),
        ("SIS", {"prompt_set": ["?"] * 51}, False),
        ("SIS", {"prompt_set": [""]}, False),
        ("SIS", {"prompt_set": [2]}, False),
        ("SIS", {"prompt_set": [{"id": "a"}]}, False),
        ("SIS", {"prompt_set": [{"prompt": ""}]}, False),
        ("SIS", {"prompt_set": [{"prompt": "a", "id": ""}]}, False),
        ("SIS", {"prompt_set": [{"prompt": "a", "answer": "xml"}]}, False),
        ("SIS", {"prompt_set": ["x" * 4001]}, False),
    ],
)
def test_a_payload_is_taken_by_the_schema_and_by_the_service_or_by_neither(
    step_type: str, payload: dict[str, Any], taken: bool
) -> None:
    schema = STEPS[step_type]["payload_schema"]
    assert jsonschema_rs.validator_for(schema).is_valid(payload) == taken
    assert taken_by_service(step_type, payload) == taken


@pytest.mark.parametrize(
    ("request_type", "last"),
    [
        ("OCR", "ocr/output.txt"),
        ("EMBEDDING", "embedding/vectors.json"),
        ("SIS", "sis/result.json"),
        ("OCR->EMBEDDING", "embedding/vectors.json"),
        ("EMBEDDING->SIS", "sis/result.json"),
        ("OCR->EMBEDDING->SIS", "sis/result.json"),
    ],
)
async def test_every_request_type_ends_with_its_output_in_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_type: str, last: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.pdf").write_bytes(SAMPLE.read_bytes())
    asked = {"prompt_set": ["When does the agreement begin?"]}
    async with live(tmp_path / ".lucius", services=packaged()) as world:
        job_id = await world.accepted(
            request_type=request_type,
            input_ref=(tmp_path / "in.pdf").as_uri(),
            output_ref=(tmp_path / "out").as_uri(),
            payload=asked,
        )
        job = (await world.client.get(f"/v1/jobs/{job_id}?wait_seconds=60")).json()
        assert job["state"] == "SUCCEEDED", job
    (promoted,) = (tmp_path / ".lucius/workspace").rglob(f"{job_id}/{last}")
    assert promoted.read_bytes() == (tmp_path / "out").read_bytes()
    if last.endswith("result.json"):
        (answer,) = json.loads(promoted.read_text())["answers"]
        assert (answer["page"], "1 March 2026" in answer["answer"]) == (2, True)


def test_a_server_imports_none_of_the_libraries_that_only_services_need() -> None:
    code = f"import sys, lucius.app; sys.exit(bool(set({LIBRARIES!r}) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
