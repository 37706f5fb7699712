"""Pages that were scanned on their side or upside down are read as they should lie."""

import numpy as np
import pytest

from lucius.services.documents import sheets_of
from lucius.services.ocr import recogniser
from lucius.services.sheets import PageChoice
from tests.services.papers import scanned

LINES = ("The Harbour Board of Ostwick", "agrees to pay a yearly fee", "before the first of March")


@pytest.mark.slow
@pytest.mark.parametrize("quarters", range(4))
def test_a_page_is_turned_before_it_is_read(quarters: int) -> None:
    picture = np.asarray(scanned(LINES).convert("RGB"))[:, :, ::-1]
    text = recogniser().text(np.rot90(picture, quarters).copy())
    assert [line.replace(" ", "") for line in text.split("\n") if line] == [
        line.replace(" ", "") for line in LINES
    ]


def test_a_text_of_older_programs_is_read() -> None:
    text = "Müllerstraße 7, fällig am 1. März: 12 €"
    ((_, sheet),) = sheets_of(text.encode("cp1252"), PageChoice())
    assert sheet == text
