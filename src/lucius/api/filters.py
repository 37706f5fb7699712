"""A filter of jobs in a request body: the same fields as in the job list, bounded to the caller's tenants."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from lucius.api.body import field_problem
from lucius.api.context import Caller
from lucius.api.requests import utc
from lucius.core.idempotency import normal_request_type
from lucius.core.states import LIVE_JOB, JobState
from lucius.ports.ledger import JobQuery

_MOST_WORDS: Final = 100


def one_or_several(word: dict[str, Any], description: str) -> dict[str, Any]:
    several = {"type": "array", "items": word, "minItems": 1, "maxItems": _MOST_WORDS}
    return {"anyOf": [word, several], "description": description}


_MAX_WORD: Final = 256
_WORD: Final[dict[str, Any]] = {"type": "string", "minLength": 1, "maxLength": _MAX_WORD}
FILTER: Final[dict[str, Any]] = {
    "type": "object",
    "description": "All that is given must match; an empty filter matches every job",
    "additionalProperties": False,
    "properties": {
        "tenant_id": one_or_several(_WORD, "One tenant or several"),
        "state": one_or_several({"type": "string"}, "One state or several"),
        "request_type": _WORD,
        "code": one_or_several(_WORD, "A step failed with this code, and has not succeeded since"),
        "step": one_or_several(_WORD, "This step failed so, or is under way"),
        "service": one_or_several(_WORD, "A step of this service failed so, or is under way"),
        "group": {**_WORD, "description": "A step failed as this group of failures did"},
        "live": {"type": "boolean", "description": "It has not ended"},
        "stuck": {"type": "boolean", "description": "It does not go on by itself"},
        "created_from": {"type": "string", "format": "date-time"},
        "created_to": {"type": "string", "format": "date-time"},
    },
}
_FIELDS: Final = frozenset(FILTER["properties"])


def filter_schema(states: Collection[JobState]) -> dict[str, Any]:
    """The filter of an order that takes jobs in these states."""
    word = {"type": "string", "enum": [state.value for state in states]}
    state = one_or_several(word, "One state or several")
    properties = {**FILTER["properties"], "state": state}
    if not set(states) & set(LIVE_JOB):
        properties["live"] = {**properties["live"], "enum": [False]}
    return {**FILTER, "properties": properties}


def job_filter(
    body: Mapping[str, Any],
    caller: Caller,
    possible: Collection[JobState],
    default_states: Collection[JobState],
) -> JobQuery:
    """`possible`: the states that a filter may name. `default_states`: those of a filter that names none."""
    given = body.get("filter")
    if not isinstance(given, dict):
        raise field_problem("/filter", "must be an object; an empty one matches every job")
    for name in given:
        if name not in _FIELDS:
            raise field_problem(
                f"/filter/{name[:64]}", f"must be one of {', '.join(sorted(_FIELDS))}"
            )
    request_type = _request_type(given)
    return JobQuery(
        tenant_ids=_tenants(given, caller),
        states=_wanted_states(given, possible, default_states),
        request_type=normal_request_type(request_type) if request_type else None,
        created_from=_moment(given, "created_from"),
        created_to=_moment(given, "created_to"),
        codes=_some(given, "code"),
        steps=_some(given, "step"),
        services=_some(given, "service"),
        group=_group(given),
    )


def wants_stuck(body: Mapping[str, Any]) -> bool:
    return _flag(body["filter"], "stuck")


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise field_problem(f"/filter/{name}", "must be true or false")
    return value


def _wanted_states(
    given: Mapping[str, Any], possible: Collection[JobState], default: Collection[JobState]
) -> frozenset[JobState]:
    asked = _states(given, possible) or frozenset(default)
    if not _flag(given, "live"):
        return asked
    if asked.isdisjoint(LIVE_JOB):
        raise field_problem(
            "/filter/live", "no job is live of those that this order takes: leave it out"
        )
    return asked & frozenset(LIVE_JOB)


def _some(given: Mapping[str, Any], name: str) -> frozenset[str] | None:
    return frozenset(_words(given, name)) if name in given else None


def _group(given: Mapping[str, Any]) -> str | None:
    if "group" in given and not _is_word(given["group"]):
        raise field_problem("/filter/group", "must be the id of a group of failures")
    return given.get("group")


def _tenants(given: Mapping[str, Any], caller: Caller) -> frozenset[str] | None:
    if "tenant_id" not in given:
        return caller.tenants
    asked = frozenset(_words(given, "tenant_id"))
    return asked if caller.tenants is None else asked & caller.tenants


def _states(given: Mapping[str, Any], possible: Collection[JobState]) -> frozenset[JobState]:
    asked = {word.upper() for word in _words(given, "state")} if "state" in given else set()
    if not asked <= {state.value for state in possible}:
        raise field_problem("/filter/state", f"must be one of {', '.join(possible)}")
    return frozenset(JobState(word) for word in asked)


def _words(given: Mapping[str, Any], name: str) -> list[str]:
    """A filter that is there but empty would match everything: it is refused."""
    value = given[name]
    words = [value] if isinstance(value, str) else value
    few = isinstance(words, list) and 1 <= len(words) <= _MOST_WORDS
    if not few or not all(map(_is_word, words)):
        each = f"of 1 to {_MAX_WORD} characters"
        raise field_problem(
            f"/filter/{name}", f"must be a string {each}, or 1 to {_MOST_WORDS} of them"
        )
    return list(words)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _MAX_WORD


def _request_type(given: Mapping[str, Any]) -> str | None:
    if "request_type" in given and not _is_word(given["request_type"]):
        raise field_problem(
            "/filter/request_type", f"must be a string of 1 to {_MAX_WORD} characters"
        )
    return given.get("request_type")


def _moment(given: Mapping[str, Any], name: str) -> datetime | None:
    if name not in given:
        return None
    try:
        return utc(given[name])
    except (ValueError, TypeError):
        raise field_problem(f"/filter/{name}", "must be an RFC 3339 instant") from None
