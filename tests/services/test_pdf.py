"""The text of simple PDF files, and what is refused."""

import zlib
from pathlib import Path

import pytest

from lucius.demo import pdf
from lucius.demo.pdf import UnreadablePdfError, pdf_pages

SAMPLE = Path(__file__).parents[2] / "examples" / "sample.pdf"


def _pdf(content: bytes, entries: bytes = b"") -> bytes:
    return (
        b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
        b"2 0 obj\n<< /Type /Pages /Kids [3 0 R] /Count 1 >>\nendobj\n"
        b"3 0 obj\n<< /Type /Page /Parent 2 0 R /Contents [4 0 R] >>\nendobj\n"
        b"4 0 obj\n<< /Length 1 " + entries + b" >>\nstream\n" + content + b"\nendstream\nendobj\n"
        b"trailer\n<< /Root 1 0 R >>\n%%EOF\n"
    )


def test_the_sample_has_two_pages_one_plain_and_one_compressed() -> None:
    first, second = pdf_pages(SAMPLE.read_bytes())
    assert first.startswith("Maintenance agreement for the Northern Light\n\nThis agreement")
    assert "until the boat can land (see\nthe tide tables)." in second
    assert second.endswith("Marit Lund for Marit & Sons.")


def test_the_sample_is_a_well_formed_file() -> None:
    data = SAMPLE.read_bytes()
    start = int(data.rsplit(b"startxref", 1)[1].split()[0])
    table = data[start:].split(b"trailer")[0].split(b"\n")[3:-1]
    for number, line in enumerate(table, start=1):
        assert data[int(line[:10]) :].startswith(b"%d 0 obj" % number)


def test_pages_can_be_limited() -> None:
    assert len(pdf_pages(SAMPLE.read_bytes(), 1)) == 1


@pytest.mark.parametrize(
    ("operators", "text"),
    [
        (b"(plain) Tj", "plain"),
        (rb"(a \(nested\) \\ and (inner) \101\n) Tj", "a (nested) \\ and (inner) A"),
        (b"[(kern) -20 (ed) -300 (words)] TJ", "kerned words"),
        (b"<48656C6C6F> Tj", "Hello"),
        (b"<FEFF00480069> Tj", "Hi"),
        (b"(one) Tj 0 -14 Td (two) Tj", "one\ntwo"),
        (b"(one) Tj (two) '", "one\ntwo"),
        (b"(caf\xe9 \x97 open) Tj", "café — open"),
    ],
)
def test_text_operators_are_understood(operators: bytes, text: str) -> None:
    assert pdf_pages(_pdf(b"BT " + operators + b" ET")) == [text]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"hello", "does not begin like a PDF"),
        (b"%PDF-1.7\n%%EOF\n", "no page tree"),
        (_pdf(b"x") + b"/Encrypt 9 0 R", "encrypted"),
        (_pdf(b"x", b"/Filter /LZWDecode"), "only Flate"),
        (_pdf(b"x", b"/Filter [/ASCII85Decode /FlateDecode]"), "only Flate"),
        (_pdf(b"not zlib", b"/Filter /FlateDecode"), "damaged"),
        (_pdf(zlib.compress(b"x" * 99)[:-4], b"/Filter /FlateDecode"), "cut off"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(UnreadablePdfError, match=why):
        pdf_pages(data)


def test_a_small_file_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_STREAM", 1000)
    bomb = _pdf(zlib.compress(b" " * 100_000), b"/Filter /FlateDecode")
    with pytest.raises(UnreadablePdfError, match="too large"):
        pdf_pages(bomb)


def test_a_page_tree_that_bites_its_tail_ends() -> None:
    data = (
        b"%PDF-1.4\n2 0 obj\n<< /Type /Pages /Kids [5 0 R] >>\nendobj\n"
        b"5 0 obj\n<< /Type /Pages /Parent 2 0 R /Kids [5 0 R] >>\nendobj\n%%EOF\n"
    )
    with pytest.raises(UnreadablePdfError, match="too deep"):
        pdf_pages(data)


@pytest.mark.parametrize("part", [0.33, 0.5, 0.9, 0.99])
def test_a_file_that_was_cut_is_refused(part: float) -> None:
    data = SAMPLE.read_bytes()
    with pytest.raises(UnreadablePdfError, match="cut off"):
        pdf_pages(data[: int(len(data) * part)])
