"""Bad input, line by line, on the packaged services: the right failure class, a code, and work that goes on.

What a hostile document costs is in `test_hostile.py`, more documents are in `test_bad_documents.py`.
"""

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.workspaces import files
from lucius.core.wire import directive_properties
from lucius.ports.bus import Message
from tests.services import hostile, papers
from tests.services.stage import SAMPLE, Stage, failure
from tests.services.test_bad_documents import huge_image, image_of_zero_size

FINAL, RETRY = "FAILED_FINAL", "FAILED_RETRY"
Given = Callable[[Stage], Awaitable[dict[str, Any]]]


def document(made: Callable[[], bytes], step_type: str = "OCR", **fields: Any) -> Given:
    async def given(stage: Stage) -> dict[str, Any]:
        return await stage.on(made(), step_type, **fields)

    return given


def directive(**changes: Any) -> Given:
    """A directive that reaches OCR whatever it says, as one does that LUCIUS did not make."""

    async def given(stage: Stage) -> dict[str, Any]:
        body = {
            "jobId": "job_1",
            "stepId": "ocr",
            "tenant_id": "tenant_a",
            "step_type": "OCR",
            "service": "ocr",
            "attempt_no": 1,
            "lease_id": "not from LUCIUS",
            "mode": "DEFAULT",
            "lane": 0,
            "routing_key_used": "tenant_a",
            "reply_topic": "replies",
            "input_ref": SAMPLE.as_uri(),
            "workspace_ref": f"{stage.folder.as_uri()}/jobs/job_1/",
            "payload": {},
        } | changes
        properties = {**directive_properties(body), "step_type": "OCR"}
        await stage.bus.publish("global-bus-p0", [Message("poison", body, properties)])
        return await stage.result()

    return given


def refusing(reason: int) -> Given:
    """The file system of the workspace takes nothing."""

    def refuse(handle: int, data: bytes) -> None:
        raise OSError(reason, "no more")

    async def given(stage: Stage) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as broken:
            for module in (files, files):
                broken.setattr(module, "write_all", refuse)
            return await stage.step("OCR", jobId=f"job_{reason}")

    return given


def missing(stage: Stage) -> Awaitable[dict[str, Any]]:
    return stage.step("OCR", input_ref=f"{stage.folder.as_uri()}/nothing.pdf")


LINES: dict[str, tuple[Given, str, str]] = {
    "directive not valid": (directive(lease_seconds="long"), FINAL, "INVALID_DIRECTIVE"),
    "directive without a workspace": (directive(workspace_ref=None), FINAL, "INVALID_DIRECTIVE"),
    "step type not ours": (directive(step_type="SIS"), RETRY, "STEP_TYPE_NOT_SERVED"),
    "input missing": (missing, FINAL, "OBJECT_MISSING"),
    "encrypted PDF": (document(papers.encrypted_pdf), FINAL, "ENCRYPTED_DOCUMENT"),
    "broken PDF": (document(lambda: b"%PDF-1.4\n%%EOF\n"), FINAL, "BROKEN_DOCUMENT"),
    "PDF with a billion pages": (document(hostile.endless_pages), FINAL, "BROKEN_DOCUMENT"),
    "image that expands to gigabytes": (document(huge_image), FINAL, "DOCUMENT_TOO_LARGE"),
    "image of zero size": (document(image_of_zero_size), FINAL, "BROKEN_DOCUMENT"),
    "no words in it": (document(lambda: "☃ ☂ …".encode(), "EMBEDDING"), FINAL, "NO_WORDS"),
    "empty document": (document(lambda: b""), FINAL, "EMPTY_DOCUMENT"),
    "PDF without text": (document(lambda: papers.text_pdf("", "")), FINAL, "EMPTY_DOCUMENT"),
    "workspace full": (refusing(errno.ENOSPC), RETRY, "DISK_FULL"),
    "workspace read-only": (refusing(errno.EROFS), RETRY, "WORKSPACE_UNAVAILABLE"),
}


async def test_every_bad_input_has_its_class_and_code_and_the_services_go_on(
    tmp_path: Path,
) -> None:
    found: dict[str, tuple[str, str]] = {}
    async with Stage(tmp_path) as stage:
        for line, (given, _, _) in LINES.items():
            found[line] = failure(await given(stage))
        after = [
            (await stage.step("OCR", jobId="after"))["status"],
            (await stage.on(b"zxqv wrtk plmk", "EMBEDDING"))["status"],
        ]
    assert found == {line: (status, code) for line, (_, status, code) in LINES.items()}
    assert after == ["SUCCEEDED", "SUCCEEDED"], "words of no language are words"
