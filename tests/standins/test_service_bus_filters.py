"""The stand-in's SQL: three values, as in Service Bus, and a refusal of what it does not know."""

import pytest

from lucius.dev.standins.service_bus.filters import FilterError, Rule, compiled
from lucius.dev.standins.service_bus.messages import Stored


def _message(**properties: str | int) -> Stored:
    return Stored({"message_id": "m1", "subject": "s"}, properties, {}, b"", b"")


@pytest.mark.parametrize(
    ("sql", "taken"),
    [
        ("1=1", True),
        ("step_type = 'OCR'", True),
        ("step_type <> 'OCR'", False),
        ("step_type IN ('SIS', 'OCR') AND lane IN (1, 2)", True),
        ("step_type IN ('SIS') OR lane = 2", True),
        ("NOT (step_type = 'OCR')", False),
        ("step_type NOT IN ('SIS')", True),
        ("user.step_type = 'OCR'", True),
        ("sys.MessageId = 'm1'", True),
        ("absent IS NULL AND lane IS NOT NULL", True),
        ("quoted = 'it''s'", True),
    ],
)
def test_a_filter_takes(sql: str, taken: bool) -> None:
    assert compiled(sql)(_message(step_type="OCR", lane=2, quoted="it's")) is taken


@pytest.mark.parametrize("sql", ["absent NOT IN ('A')", "absent <> 'A'", "NOT absent = 'A'"])
def test_what_is_missing_is_unknown_and_not_taken(sql: str) -> None:
    assert compiled(sql)(_message()) is None


@pytest.mark.parametrize("sql", ["a LIKE 'b%'", "a > 1", "EXISTS(a)", "a = ", "a IN (1", "; DROP"])
def test_what_is_not_supported_is_refused(sql: str) -> None:
    with pytest.raises(FilterError):
        compiled(sql)


def test_a_correlation_filter_compares_for_equality() -> None:
    test = Rule("r", None, {"lane": 2}, {"subject": "s"}).test()
    assert test(_message(lane=2))
    assert not test(_message(lane=3))
