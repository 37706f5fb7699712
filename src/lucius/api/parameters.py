"""Parameters of paths and queries: read strictly from their texts, and published as what they are."""

from collections.abc import Iterable
from datetime import MINYEAR, UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Path
from pydantic import BeforeValidator, Field, WithJsonSchema

from lucius.core.states import JobState

MAX_WAIT: Final = 60
MAX_PAGE: Final = 500
MAX_SEQ: Final = 2**53
_TRUE: Final = frozenset(("true", "1", "yes"))
_FALSE: Final = frozenset(("false", "0", "no"))
_STATES: Final = "|".join(JobState)


def digits(text: Any) -> int:
    plain = text.removeprefix("-") if isinstance(text, str) else ""
    if not (plain.isascii() and plain.isdigit()) or len(plain) > 17:
        raise ValueError("must be a whole number")
    return int(text)


def number(text: Any) -> float:
    try:
        if isinstance(text, str) and text.isascii() and "_" not in text and text == text.strip():
            return float(text)
    except ValueError:
        pass
    raise ValueError("must be a number")


def flag(text: Any) -> bool:
    word = text.lower() if isinstance(text, str) else ""
    if word not in _TRUE and word not in _FALSE:
        raise ValueError("must be true or false")
    return word in _TRUE


def moment(text: Any) -> datetime:
    """A plus sign that a query has turned into a space is one."""
    try:
        return utc(text.replace(" ", "+"))
    except ValueError:
        raise ValueError("must be an RFC 3339 instant") from None


def utc(text: str) -> datetime:
    """An instant with or without its zone. What lies beyond the calendar is its first or last moment."""
    at = datetime.fromisoformat(text)
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        edge = datetime.min if at.year == MINYEAR else datetime.max
        return edge.replace(tzinfo=UTC)


def words(given: Iterable[str]) -> list[str]:
    """A filter given several times, or once with commas. One that is there but empty is refused."""
    found: list[str] = []
    for text in given:
        several = [word.strip() for word in text.split(",") if word.strip()]
        if not several:
            raise ValueError("must not be empty")
        found += several
    return found


def states(given: Iterable[str]) -> list[JobState]:
    named = [word.upper() for word in words(given)]
    if not set(named) <= set(JobState):
        raise ValueError(f"must be one of {', '.join(JobState)}")
    return [JobState(word) for word in named]


SecondsParameter = Annotated[
    float, Field(ge=0, le=MAX_WAIT, allow_inf_nan=False), BeforeValidator(number)
]
FlagParameter = Annotated[bool, BeforeValidator(flag)]
MomentParameter = Annotated[datetime, BeforeValidator(moment)]
WordsParameter = Annotated[
    list[str],
    BeforeValidator(words),
    WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": r"[^,\s]"}}),
]
"""Several with commas, or the parameter several times."""
StatesParameter = Annotated[
    list[JobState],
    BeforeValidator(states),
    WithJsonSchema(
        {"type": "array", "items": {"type": "string", "pattern": f"^({_STATES})(,({_STATES}))*$"}}
    ),
]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE), BeforeValidator(digits)]
Seq = Annotated[int, Field(ge=0, le=MAX_SEQ), BeforeValidator(digits)]

JobIdInPath = Annotated[str, Path(alias="jobId", min_length=1, description="The job's id")]
PlanIdInPath = Annotated[str, Path(alias="planId", min_length=1, description="The plan's id")]
ServiceInPath = Annotated[
    str, Path(alias="service", min_length=1, description="The service's name, as in the protocols")
]
