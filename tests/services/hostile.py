"""Small documents that cost much, and OCR with limits that a test can wait for."""

import gc
import os
import signal
from datetime import timedelta

from lucius.platform import Output, Service, SyncTask
from lucius.services import Ocr
from tests.services import papers

MIB = 1024 * 1024
DEPTH = 30
DEADLY = b"this document ends the process that reads it"


def endless_pages() -> bytes:
    """3 KB, with 2^30 pages in its tree: each node has the next one twice."""
    nodes = [
        b"<< /Type /Pages %s /Kids [%d 0 R %d 0 R] /Count %d >>"
        % (b"/Parent %d 0 R" % (n - 1) if n > 2 else b"", n + 1, n + 1, 2 ** (DEPTH - n + 2))
        for n in range(2, DEPTH + 2)
    ]
    page = b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 9 9] >>" % (DEPTH + 1)
    return papers.pdf(papers.CATALOGUE, *nodes, page)


def flate_bomb() -> bytes:
    """Half a megabyte of page content that unpacks to 512 MB, twice what may be in use."""
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 600] /Contents 4 0 R >>"
    content = papers.stream(papers.zeros(512 * MIB), b"/Filter /FlateDecode")
    tree = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    return papers.pdf(papers.CATALOGUE, tree, page, content)


def huge_image_in_a_pdf() -> bytes:
    """200 KB, of an image that unpacks to 200 MB."""
    return papers.page_with_image(20_000, 10_000, papers.zeros(200_000_000), side=200)


def many_pages() -> bytes:
    return papers.long_scan(2001)


def without_end() -> bytes:
    """It takes a machine an hour to read this."""
    return papers.long_scan(2000)


class LimitedOcr(Ocr):
    processes = 2
    time_limit = timedelta(minutes=5)
    memory_limit = 256 * MIB


class HastyOcr(Ocr):
    time_limit = timedelta(seconds=1)


class NamedOcr(Ocr):
    """Says in which process it ran, and how much that steps aside for others."""

    processes = 1

    def execute(self, task: SyncTask) -> Output:
        output = super().execute(task)
        task.stage("process.txt", f"process {os.getpid()}, niceness {os.nice(0)}")
        return output


class Curious(Service):
    """Looks for what another service was told."""

    name = "ocr"
    step_types = ("OCR",)
    isolation = "process"

    def execute(self, task: SyncTask) -> Output:
        known = {type(each).__name__ for each in gc.get_objects()}
        task.stage("output.txt", "it knows SIS" if "Sis" in known else "it knows nothing")
        return Output()


class MortalOcr(Ocr):
    """Ends by a signal, as a native library would, where a document says so."""

    processes = 2

    def execute(self, task: SyncTask) -> Output:
        if task.input() == DEADLY:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().execute(task)
