"""OCR reads the pages of one document on all cores that it may use."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from lucius.services import ocr
from lucius.services.ocr import MOST_AT_ONCE, OcrOptions


def test_a_document_has_as_many_threads_as_the_service_has_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    class Watched(ThreadPoolExecutor):
        def __init__(self, threads: int) -> None:
            asked.append(threads)
            raise RuntimeError("that is all this test wants to know")

    monkeypatch.setattr(ocr, "ThreadPoolExecutor", Watched)
    monkeypatch.setattr(ocr, "sheets_of", lambda document, options: iter(()))
    task = cast(Any, type("Given", (), {"payload": OcrOptions(), "input": lambda self: b""})())
    for cores, threads in ((1, 1), (2, 2), (64, MOST_AT_ONCE)):
        monkeypatch.setattr(ocr, "cores", lambda cores=cores: cores)
        with pytest.raises(RuntimeError):
            ocr.Ocr().execute(task)
        assert asked.pop() == threads
