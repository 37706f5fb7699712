"""Documents made to stop a server: each ends in a failure with a code, and others are served meanwhile."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lucius.demo import Ocr
from tests.services import hostile
from tests.services.test_demo import SAMPLE, Stage


def cut_to_a_third() -> bytes:
    data = SAMPLE.read_bytes()
    return data[: len(data) // 3]


@pytest.mark.parametrize(
    ("document", "service", "status", "code"),
    [
        (hostile.endless_pages, hostile.LimitedOcr, "FAILED_RETRY", "TIME_LIMIT"),
        (hostile.flate_bomb, hostile.PatientOcr, "FAILED_FINAL", "MEMORY_LIMIT"),
        (hostile.large_text, hostile.PatientOcr, "FAILED_FINAL", "DOCUMENT_TOO_LARGE"),
        (cut_to_a_third, hostile.PatientOcr, "FAILED_FINAL", "UNSUPPORTED_DOCUMENT"),
    ],
)
async def test_a_hostile_document_ends_in_a_failure_with_a_code(
    tmp_path: Path, document: Callable[[], bytes], service: type[Ocr], status: str, code: str
) -> None:
    (tmp_path / "hostile").write_bytes(document())
    async with Stage(tmp_path, (service,)) as stage:
        result = await stage.step("OCR", input_ref=(tmp_path / "hostile").as_uri())
        assert (result["status"], result["error"]["code"]) == (status, code)
        after = await stage.step("OCR", jobId="job_2", lease_id="l2")
        assert after["status"] == "SUCCEEDED"
