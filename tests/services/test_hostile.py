"""Documents made to stop a server: each ends in a failure with a code, and others are served meanwhile."""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from lucius.adapters.workspaces import files
from lucius.adapters.workspaces.records import Records
from lucius.platform import Service
from lucius.services import Ocr, ocr
from lucius.services.ocr import OcrOptions, PageSlots, Recogniser, recognised
from lucius.services.sheets import NICENESS, Picture, Sheets
from tests.services import hostile
from tests.services.papers import image_bytes, scanned
from tests.services.stage import SAMPLE, Stage, failure


@pytest.mark.parametrize(
    ("document", "service", "status", "code"),
    [
        (hostile.endless_pages, Ocr, "FAILED_FINAL", "BROKEN_DOCUMENT"),
        (hostile.many_pages, Ocr, "FAILED_FINAL", "DOCUMENT_TOO_LARGE"),
        (hostile.flate_bomb, hostile.LimitedOcr, "FAILED_FINAL", "MEMORY_LIMIT"),
        (hostile.huge_image_in_a_pdf, Ocr, "FAILED_FINAL", "EMPTY_DOCUMENT"),
        (hostile.without_end, hostile.HastyOcr, "FAILED_RETRY", "TIME_LIMIT"),
    ],
)
async def test_a_hostile_document_ends_in_a_failure_with_a_code(
    tmp_path: Path,
    document: Callable[[], bytes],
    service: type[Service],
    status: str,
    code: str,
) -> None:
    async with Stage(tmp_path, [service()]) as stage:
        assert failure(await stage.on(document())) == (status, code)
    async with Stage(tmp_path, [Ocr()]) as stage:
        assert (await stage.step("OCR"))["status"] == "SUCCEEDED"


async def test_a_document_that_ends_its_process_costs_one_attempt_of_its_own(
    tmp_path: Path,
) -> None:
    deadly = tmp_path / "deadly"
    deadly.write_bytes(hostile.DEADLY)
    async with Stage(tmp_path, [hostile.MortalOcr()]) as stage:
        await stage.begin("OCR", jobId="other", input_ref=SAMPLE.as_uri())
        await stage.begin("OCR", jobId="deadly", input_ref=deadly.as_uri())
        results = [await stage.result(), await stage.result()]
        by_job = {result["jobId"]: result for result in results}
        assert by_job["other"]["status"] == "SUCCEEDED"
        assert failure(by_job["deadly"]) == ("FAILED_RETRY", "PROCESS_DIED")
        deadly.write_bytes(b"harmless by now")
        again = await stage.step("OCR", jobId="deadly", attempt_no=2, input_ref=deadly.as_uri())
        assert again["status"] == "SUCCEEDED"


async def test_a_process_keeps_its_model_and_steps_aside_for_the_server(tmp_path: Path) -> None:
    scan = image_bytes(scanned(["Lamp oil: 40 litres"]))
    async with Stage(tmp_path, [hostile.NamedOcr()]) as stage:
        results = [await stage.on(scan) for _ in range(3)]
        assert {result["status"] for result in results} == {"SUCCEEDED"}
    said = glob(f"{tmp_path}/jobs/*/ocr/process.txt")
    assert len(said) == 3
    (same,) = {stage.text(path) for path in said}
    assert same.endswith(f"niceness {max(NICENESS, os.nice(0))}")


@pytest.mark.parametrize(
    ("reason", "code"),
    [(errno.ENOSPC, "DISK_FULL"), (errno.EROFS, "WORKSPACE_UNAVAILABLE")],
)
async def test_a_workspace_that_is_full_or_read_only_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int, code: str
) -> None:
    def refuse(handle: int, data: bytes) -> None:
        raise OSError(reason, "no more")

    async with Stage(tmp_path, [Ocr()]) as stage:
        with monkeypatch.context() as full:
            full.setattr(files, "write_all", refuse)
            assert failure(await stage.step("OCR")) == ("FAILED_RETRY", code)
        again = await stage.step("OCR", attempt_no=2)
        assert again["status"] == "SUCCEEDED"


@pytest.mark.parametrize(
    "reason", ["database or disk is full", "attempt to write a readonly database"]
)
async def test_notes_that_cannot_be_written_fail_the_step_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def refuse(records: Records, asked: object, patience: float) -> bool:
        raise sqlite3.OperationalError(reason)

    async with Stage(tmp_path, [Ocr()]) as stage:
        with monkeypatch.context() as full:
            full.setattr(Records, "_committed", refuse)
            result = await stage.step("OCR")
            assert failure(result) == ("FAILED_RETRY", "WORKSPACE_UNAVAILABLE")
            assert reason in result["error"]["message"]
        again = await stage.step("OCR", attempt_no=2)
        assert again["status"] == "SUCCEEDED"


class TwoAtOnce(Recogniser):
    """Reads a page only while another one is being read."""

    def __init__(self) -> None:
        super().__init__()
        self._met = Barrier(2, timeout=60)

    def text(self, picture: Picture) -> str:
        self._met.wait()
        return "read"


def blank_sheets(count: int, made: list[int]) -> Sheets:
    for number in range(1, count + 1):
        made.append(number)
        yield number, np.zeros((4, 4, 3))


def test_the_pages_of_one_document_are_read_at_the_same_time_and_few_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ocr, "OCR_PAGES", 2)
    monkeypatch.setattr(ocr, "SLOTS", PageSlots(2))
    made: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        sheets = blank_sheets(10, made)
        texts: Iterator[tuple[int, str]] = recognised(sheets, OcrOptions(), pool, TwoAtOnce())
        assert next(texts) == (1, "read")
        assert len(made) == 3
        assert [number for number, _ in texts] == list(range(2, 11))
