"""Small documents that cost much, and OCR with limits that a test can wait for."""

import zlib
from datetime import timedelta

from lucius.demo import Ocr

MIB = 1024 * 1024
DEPTH = 30


def endless_pages() -> bytes:
    """2 KB, with 2^30 pages in its tree: each node has the next one twice."""
    nodes = [
        b"%d 0 obj\n<< /Type /Pages %s /Kids [%d 0 R %d 0 R] >>\nendobj\n"
        % (number, b"/Parent 1 0 R" if number > 1 else b"", number + 1, number + 1)
        for number in range(1, DEPTH + 1)
    ]
    page = b"%d 0 obj\n<< /Type /Page /Parent 1 0 R >>\nendobj\n" % (DEPTH + 1)
    return b"%PDF-1.4\n" + b"".join(nodes) + page + b"%%EOF\n"


def flate_bomb() -> bytes:
    """60 KB that unpack to 60 MB of operands, and those to much more."""
    packed = zlib.compress(b"12 " * (20 * MIB), 9)
    return (
        b"%PDF-1.4\n1 0 obj\n<< /Type /Pages /Kids [2 0 R] >>\nendobj\n"
        b"2 0 obj\n<< /Type /Page /Parent 1 0 R /Contents 3 0 R >>\nendobj\n"
        b"3 0 obj\n<< /Filter /FlateDecode >>\nstream\n" + packed + b"\nendstream\nendobj\n%%EOF\n"
    )


def large_text() -> bytes:
    return b"word after word. " * (50 * MIB // 17)


class LimitedOcr(Ocr):
    processes = 2
    time_limit = timedelta(seconds=1)
    memory_limit = 256 * MIB


class PatientOcr(LimitedOcr):
    time_limit = timedelta(minutes=5)
