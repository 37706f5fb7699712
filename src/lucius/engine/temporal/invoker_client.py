"""The port of the worker: what an activity asks of the invoker, in this process or over HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

import httpx
import orjson

from lucius.contract.words import without_credentials
from lucius.core.effects import Outcome
from lucius.core.errors import RequestError, WorkflowsUnavailableError
from lucius.core.inputs import (
    AckReceived,
    AttemptRequested,
    CancelRequested,
    Dismissed,
    HeartbeatReceived,
    Input,
    LeaseReturned,
    PauseRequested,
    Redriven,
    ResendRequested,
    ResultReceived,
    ResultStatus,
    ResumeRequested,
    RetryRequested,
)
from lucius.core.job import Fault
from lucius.core.record import record
from lucius.engine.temporal.invoker import Answered, Invoker

# Inputs as JSON: what an orchestrator passes on to the invoker.

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
        ResendRequested,
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


Typed = TypeVar("Typed")


def _typed(said: Typed) -> Typed:
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


InvokerAnswer = Mapping[str, Any]
"""`{"status": "ok", "outcome": ..., "snapshot": {...}}`"""


class Asking(Protocol):
    """None: there is no such job or step. Any other failure raises, and the activity is tried again."""

    async def attempt(self, body: Mapping[str, Any]) -> InvokerAnswer | None: ...

    async def publish(self, body: Mapping[str, Any]) -> InvokerAnswer | None: ...

    async def timeout(self, body: Mapping[str, Any]) -> InvokerAnswer | None: ...


class AskingHere:
    """Worker and invoker are one process."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    async def attempt(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        publish = bool(body.get("publish"))
        return self._told(await self._invoker.attempt(body["jobId"], asked(body), publish=publish))

    async def publish(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        return self._told(await self._invoker.publish(body["jobId"], asked(body)))

    async def timeout(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        return self._told(await self._invoker.timeout(body["jobId"]))

    def _told(self, answered: Answered | None) -> InvokerAnswer | None:
        return self._invoker.answer_of(answered) if answered is not None else None


def asked(body: Mapping[str, Any]) -> AttemptRequested:
    return AttemptRequested(body["stepId"], body["attempt_no"], body["lease_id"])


# The invoker over HTTP: for workers, which ask, and for orchestrators, which pass inputs on.

PATIENCE: Final = 20.0
NOT_FOUND: Final = 404
SUPERSEDED: Final = 409
"""An answer as well: with the outcome, and a snapshot that says what comes next."""
CALLS: Final = 256
"""Connections, all of which are kept: more than a worker asks at once."""


@record
class PassedOn:
    """What an input did, at the invoker."""

    outcome: Outcome
    code: str | None = None


class RemoteInvoker:
    """WorkflowsUnavailableError: it did not answer, or not with what was asked for."""

    def __init__(
        self,
        urls: Sequence[str],
        secret: str,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._turn = 0
        headers = {"authorization": f"Bearer {secret}"} if secret else {}
        headers["content-type"] = "application/json"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=PATIENCE,
            transport=transport,
            limits=httpx.Limits(max_connections=CALLS, max_keepalive_connections=CALLS),
        )

    async def attempt(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        return await self._post("/v1/internal/steps/attempt", body)

    async def publish(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        return await self._post("/v1/internal/publish", {"directive": body})

    async def timeout(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        return await self._post("/v1/internal/steps/timeout", body)

    async def apply(self, job_id: str, received: Input) -> PassedOn | None:
        """None: there is no such job."""
        told = await self._post(
            f"/v1/internal/jobs/{quote(job_id, safe='')}/inputs", input_json(received)
        )
        return PassedOn(Outcome(told["outcome"]), told.get("code")) if told is not None else None

    async def _post(self, path: str, body: Mapping[str, Any]) -> InvokerAnswer | None:
        answer = await self._asked("POST", path, orjson.dumps(body))
        if answer.status_code == NOT_FOUND:
            return None
        if answer.status_code != SUPERSEDED and not answer.is_success:
            raise self._unavailable(f"{answer.status_code} {answer.text[:500]}")
        told: dict[str, Any] = orjson.loads(answer.content)
        return told

    def _unavailable(self, why: str) -> WorkflowsUnavailableError:
        urls = ", ".join(map(without_credentials, self._urls))
        return WorkflowsUnavailableError(f"the invoker at {urls} (LUCIUS_INVOKER_URL): {why}")

    async def _asked(self, method: str, path: str, content: bytes = b"") -> httpx.Response:
        """By the next one in turn. One that takes no connection was asked nothing: the next one is."""
        for left in range(len(self._urls), 0, -1):
            self._turn = (self._turn + 1) % len(self._urls)
            try:
                url = self._urls[self._turn] + path
                return await self._client.request(method, url, content=content)
            except httpx.HTTPError as error:
                if left == 1 or not isinstance(error, httpx.ConnectError):
                    raise self._unavailable(str(error) or type(error).__name__) from error
        raise self._unavailable("no address is set")

    async def check(self) -> None:
        await self._asked("GET", "/healthz")

    async def close(self) -> None:
        await self._client.aclose()
