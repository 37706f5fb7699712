"""Inputs as JSON: what an orchestrator passes on to the invoker."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

from lucius.core.errors import RequestError
from lucius.core.inputs import (
    AckReceived,
    CancelRequested,
    Dismissed,
    HeartbeatReceived,
    Input,
    LeaseReturned,
    PauseRequested,
    Redriven,
    ResultReceived,
    ResultStatus,
    ResumeRequested,
    RetryRequested,
)
from lucius.core.job import Fault

PASSED_ON: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        AckReceived,
        CancelRequested,
        Dismissed,
        HeartbeatReceived,
        LeaseReturned,
        PauseRequested,
        Redriven,
        ResultReceived,
        ResumeRequested,
        RetryRequested,
    )
}


def input_json(received: Input) -> dict[str, Any]:
    """`input` names what has happened; the rest is its own."""
    name = type(received).__name__
    if name not in PASSED_ON:
        raise TypeError(f"{name} is no input that is passed on")
    said = {each.name: getattr(received, each.name) for each in fields(received)}
    if isinstance(received, ResultReceived):
        fault = received.fault
        said["fault"] = [fault.code, fault.message] if fault is not None else None
    return {"input": name, **said}


def input_of(body: Mapping[str, Any]) -> Input:
    """RequestError INVALID_BODY where it is none."""
    said = dict(body)
    kind = PASSED_ON.get(str(said.pop("input", "")))
    if kind is None:
        raise _invalid("/input", f"must be one of {', '.join(PASSED_ON)}")
    try:
        if kind is ResultReceived:
            said["status"] = ResultStatus(said["status"])
            said["fault"] = _typed(Fault(*said["fault"])) if said.get("fault") else None
        received: Input = _typed(kind(**said))
    except (KeyError, TypeError, ValueError) as error:
        raise _invalid("", f"is no {kind.__name__}: {error}") from error
    return received


Said = TypeVar("Said")


def _typed(said: Said) -> Said:
    """Records do not check what they are made of. A boolean is no number here."""
    for each in fields(said):  # type: ignore[arg-type]
        value, kind = getattr(said, each.name), each.type
        if kind is Any:
            continue
        if not isinstance(value, kind) or (type(value) is bool and kind is not bool):  # type: ignore[arg-type]
            raise TypeError(f"{each.name} must be {getattr(kind, '__name__', kind)}")
    return said


def _invalid(pointer: str, detail: str) -> RequestError:
    faults = ((pointer, detail),)
    return RequestError("INVALID_BODY", f"the input {detail}", faults=faults)
