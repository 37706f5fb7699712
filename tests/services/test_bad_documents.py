"""Documents that cannot be read: each ends in a final failure with a code, and the service goes on."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from lucius.services.sheets import MAX_DOCUMENT
from tests.services import papers
from tests.services.stage import SAMPLE, SCAN, Stage, failure


def cut_to_a_third() -> bytes:
    data = SAMPLE.read_bytes()
    return data[: len(data) // 3]


def image_of_zero_size() -> bytes:
    whole = papers.image_bytes(Image.new("L", (4, 4)), "BMP")
    return whole[:18] + bytes(8) + whole[26:]


def half_an_image() -> bytes:
    whole = papers.image_bytes(papers.scanned(["half"]))
    return whole[: len(whole) // 2]


def huge_image() -> bytes:
    """A few kilobytes that say that they are 40,000 pixels wide and high: 1.6 GB."""
    side = 40_000
    header = side.to_bytes(4, "big") * 2 + b"\x08\x00\x00\x00\x00"
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    chunks = [
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def pdf_without_pages() -> bytes:
    return papers.pdf(papers.CATALOGUE, b"<< /Type /Pages /Kids [] /Count 0 >>")


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (papers.encrypted_pdf, "ENCRYPTED_DOCUMENT"),
        (lambda: b"%PDF-1.4 and then nothing", "BROKEN_DOCUMENT"),
        (lambda: b"%PDF-1.4\n%%EOF\n", "BROKEN_DOCUMENT"),
        (cut_to_a_third, "BROKEN_DOCUMENT"),
        (half_an_image, "BROKEN_DOCUMENT"),
        (image_of_zero_size, "BROKEN_DOCUMENT"),
        (lambda: b"\x89PNG\r\n\x1a\n", "BROKEN_DOCUMENT"),
        (huge_image, "DOCUMENT_TOO_LARGE"),
        (lambda: bytes(MAX_DOCUMENT + 1), "OBJECT_TOO_LARGE"),
        (lambda: b"word after word. " * (1024 * 1024), "DOCUMENT_TOO_LARGE"),
        (lambda: b"\xff\xfe\x00\x01 no text", "UNSUPPORTED_DOCUMENT"),
        (lambda: b"PK\x03\x04 word/document.xml", "UNSUPPORTED_DOCUMENT"),
        (lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 a DOC", "UNSUPPORTED_DOCUMENT"),
        (lambda: b"", "EMPTY_DOCUMENT"),
        (lambda: b"  \n", "EMPTY_DOCUMENT"),
        (pdf_without_pages, "BROKEN_DOCUMENT"),
        (lambda: papers.text_pdf("", ""), "EMPTY_DOCUMENT"),
        (lambda: "☃ ☂ … ⸮".encode(), "NO_WORDS"),
    ],
)
async def test_a_document_that_cannot_be_read_is_final(
    tmp_path: Path, document: Callable[[], bytes], code: str
) -> None:
    async with Stage(tmp_path) as stage:
        assert failure(await stage.on(document())) == ("FAILED_FINAL", code)
        after = await stage.step("OCR")
    assert after["status"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("reference", "code"),
    [("missing.pdf", "OBJECT_MISSING"), ("../outside.pdf", "REFERENCE_REFUSED")],
)
async def test_an_input_that_is_not_there_is_final(
    tmp_path: Path, reference: str, code: str
) -> None:
    async with Stage(tmp_path) as stage:
        for step_type, payload in (("OCR", {}), ("EMBEDDING", {}), ("SIS", {"prompt_set": ["a"]})):
            uri = f"{tmp_path.as_uri()}/{reference}"
            result = await stage.step(step_type, input_ref=uri, payload=payload)
            assert failure(result) == ("FAILED_FINAL", code)


@pytest.mark.parametrize(
    ("step_type", "payload", "code"),
    [
        ("OCR", {"pages": 0}, "INVALID_PAYLOAD"),
        ("OCR", {"pages": "two"}, "INVALID_PAYLOAD"),
        ("OCR", {"pages": "8-9"}, "PAGES_OUT_OF_RANGE"),
        ("EMBEDDING", {"chunk_size": 15}, "INVALID_PAYLOAD"),
        ("EMBEDDING", {"chunk_size": 100, "overlap": 100}, "INVALID_PAYLOAD"),
        ("EMBEDDING", {"dimensions": 100}, "INVALID_PAYLOAD"),
        ("SIS", {}, "INVALID_PAYLOAD"),
        ("SIS", {"prompt_set": []}, "INVALID_PAYLOAD"),
        ("SIS", {"prompt_set": [{"prompt": "a", "answer": "xml"}]}, "INVALID_PAYLOAD"),
        ("SIS", {"prompt_set": [{"prompt": "a", "id": "2"}, "b"]}, "INVALID_PAYLOAD"),
    ],
)
async def test_a_bad_payload_is_final(
    tmp_path: Path, step_type: str, payload: dict[str, Any], code: str
) -> None:
    async with Stage(tmp_path) as stage:
        assert failure(await stage.step(step_type, payload=payload)) == ("FAILED_FINAL", code)


async def test_a_scan_needs_ocr_first_and_a_language_that_its_model_knows(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        for step_type, payload in (("EMBEDDING", {}), ("SIS", {"prompt_set": ["a"]})):
            result = await stage.step(step_type, input_ref=SCAN.as_uri(), payload=payload)
            assert failure(result) == ("FAILED_FINAL", "OCR_NEEDED")
        german = {"language": "de"}
        scan = await stage.step("OCR", input_ref=SCAN.as_uri(), payload=german)
        assert failure(scan) == ("FAILED_FINAL", "LANGUAGE_UNSUPPORTED")
        layer = await stage.step("OCR", payload=german)
    assert layer["status"] == "SUCCEEDED", "a text layer is taken whatever its language is"


@pytest.mark.parametrize(
    "vectors",
    [
        b'{"model": "another", "dimensions": 256, "passages": []}',
        b'{"model": "wordllama-l2-supercat", "dimensions": 64, "passages": []}',
        b'{"model": "wordllama-l2-supercat", "dimensions": 64, "passages": [{"page": 1}]}',
        b'{"model": "wordllama-l2-supercat", "dimensions": 64, "passages":'
        b' [{"page": 1, "passage": 1, "text": "a", "vector": [1.0, NaN]}]}',
    ],
)
async def test_vectors_that_cannot_be_compared_are_final(tmp_path: Path, vectors: bytes) -> None:
    async with Stage(tmp_path) as stage:
        result = await stage.on(vectors, "SIS", payload={"prompt_set": ["what?"]})
        assert failure(result) == ("FAILED_FINAL", "INVALID_VECTORS")


async def test_words_of_no_language_are_embedded_and_answer_nothing(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        asked = {"prompt_set": ["What does the repair cost?"]}
        result = await stage.on(b"zxqv wrtk plmk. bcdf ghjk.", "SIS", payload=asked)
        assert '"answer": null' in stage.output(result)
