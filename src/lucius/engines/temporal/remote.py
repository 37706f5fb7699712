"""The invoker over HTTP: for workers, which ask, and for orchestrators, which pass inputs on."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx
import orjson

from lucius.contract.addresses import without_credentials
from lucius.core.effects import Outcome
from lucius.core.errors import WorkflowsUnavailableError
from lucius.core.inputs import Input
from lucius.core.record import record
from lucius.engines.temporal.asking import Told
from lucius.engines.temporal.inputs import input_json

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

    async def attempt(self, body: Mapping[str, Any]) -> Told | None:
        return await self._post("/v1/internal/steps/attempt", body)

    async def publish(self, body: Mapping[str, Any]) -> Told | None:
        return await self._post("/v1/internal/publish", {"directive": body})

    async def timeout(self, body: Mapping[str, Any]) -> Told | None:
        return await self._post("/v1/internal/steps/timeout", body)

    async def apply(self, job_id: str, received: Input) -> PassedOn | None:
        """None: there is no such job."""
        told = await self._post(
            f"/v1/internal/jobs/{quote(job_id, safe='')}/inputs", input_json(received)
        )
        return PassedOn(Outcome(told["outcome"]), told.get("code")) if told is not None else None

    async def _post(self, path: str, body: Mapping[str, Any]) -> Told | None:
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
