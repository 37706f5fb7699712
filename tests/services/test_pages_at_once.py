"""OCR reads the pages of one document on all cores that it may use, and those of many on no more."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy
import pytest

from lucius.platform.isolation.forks import ForkServer
from lucius.platform.isolation.pool import InProcesses
from lucius.platform.service import cores, memory_limit_of, slots_of
from lucius.services import ocr
from lucius.services.ocr import Ocr, OcrOptions, PageSlots, Recogniser, recognised
from lucius.services.sheets import MIB, OCR_MEMORY, OCR_PAGES


class Counting(Recogniser):
    """Each page waits until as many as are expected are being read."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self._together = threading.Barrier(together)
        self._lock = threading.Lock()
        self.reading = self.most = 0

    def text(self, picture: Any) -> str:
        with self._lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        self._together.wait(20)
        with self._lock:
            self.reading -= 1
        return "text"


def read(reader: Counting, threads: int, pages: int) -> list[tuple[int, str]]:
    sheets = ((number, numpy.zeros((1, 1, 3), numpy.uint8)) for number in range(1, pages + 1))
    with ThreadPoolExecutor(threads) as pool:
        return list(recognised(cast(Any, sheets), OcrOptions(), pool, reader))


def test_a_document_is_read_on_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "OCR_PAGES", 8)
    monkeypatch.setattr(ocr, "SLOTS", PageSlots(8))
    reader = Counting(together=8)
    assert [number for number, _ in read(reader, 8, 16)] == list(range(1, 17))
    assert reader.most == 8


def test_no_more_pages_are_read_at_once_than_there_are_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ocr, "OCR_PAGES", 8)
    monkeypatch.setattr(ocr, "SLOTS", PageSlots(2))
    reader = Counting(together=2)
    read(reader, 8, 8)
    assert reader.most == 2


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="slots are files in memory")
def test_a_slot_is_shared_with_children_and_free_again_when_its_holder_is_killed() -> None:
    slots, (ready, tell) = PageSlots(1), os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        with slots.taken():
            os.write(tell, b"!")
            signal.pause()
    assert os.read(ready, 1) == b"!"
    taken = threading.Event()

    def take() -> None:
        with slots.taken():
            taken.set()

    waiting = threading.Thread(target=take)
    waiting.start()
    assert not taken.wait(0.2), "the child has it"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert taken.wait(20)
    waiting.join()


def test_the_memory_limit_leaves_room_for_the_pages_of_all_cores() -> None:
    assert max(2048, 400 * OCR_PAGES) * MIB <= OCR_MEMORY
    assert min(cores(), 16) == OCR_PAGES


@pytest.mark.parametrize(
    ("said", "processes", "each"),
    [
        ("max", 2, 2048),
        ("", 2, 2048),
        (str(4608 * MIB), 2, 2048),
        (str(3072 * MIB), 1, 2048),
        (str(2048 * MIB), 1, 1536),
        (str(512 * MIB), 1, 256),
    ],
)
def test_all_processes_at_their_limit_fit_into_the_container(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    said: str,
    processes: int,
    each: int,
) -> None:
    (tmp_path / "memory.max").write_text(said)
    monkeypatch.setitem(cores.__globals__, "MEMORY_LIMIT", str(tmp_path / "memory.max"))
    service = Ocr()
    service.processes, service.memory_limit = 2, 2048 * MIB
    assert (slots_of(service, 8), memory_limit_of(service)) == (processes, each * MIB)
    InProcesses(service, ForkServer()).warn_of_little_memory()
    assert ("all need 4608 MiB" in caplog.text) == ((processes, each) != (2, 2048))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("max 100000", 64),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("9900000 100000", 64),
        ("", 64),
    ],
)
def test_a_container_uses_the_cores_of_its_quota(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, found: int
) -> None:
    (tmp_path / "cpu.max").write_text(said)
    monkeypatch.setitem(cores.__globals__, "CPU_QUOTA", str(tmp_path / "cpu.max"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert cores() == found
    monkeypatch.setitem(cores.__globals__, "CPU_QUOTA", str(tmp_path / "nothing"))
    assert cores() == 64
