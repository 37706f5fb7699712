"""Every answer has exactly the fields of the model that its route declares, whatever a test asks for."""

import re

import httpx
from pydantic import BaseModel

from lucius.contract.models.base import ProblemView, UnreadyView
from lucius.http.app import ROUTES
from lucius.http.problems import MEDIA_TYPE
from lucius.http.routing import JSON, ApiRoute
from tests.contract.fitting import misfits

PATTERNS = [(route, re.compile(re.sub(r"\{\w+\}", r"[^/:]+", route.path))) for route in ROUTES]


def route_of(request: httpx.Request) -> ApiRoute | None:
    for route, pattern in PATTERNS:
        if route.method == request.method and pattern.fullmatch(request.url.path):
            return route
    return None


def documented_codes(route: ApiRoute) -> set[tuple[int, str]]:
    """Status and code of every problem that OpenAPI lists for the route."""
    return {(known.status, known.code) for known in route.codes}


def models_of(route: ApiRoute) -> dict[int, type[BaseModel] | None]:
    """The model of each success."""
    found: dict[int, type[BaseModel] | None] = {
        int(status): each.get("model")
        for status, each in route.responses.items()
        if int(status) < 400
    }
    return found | {route.status_code or 200: route.response_model}


def media_of(answer: httpx.Response) -> str:
    return str(answer.headers.get("content-type", "")).partition(";")[0]


class Conforming:
    """A hook of an HTTP client. `seen` is what was answered as its model says."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    async def __call__(self, answer: httpx.Response) -> None:
        route = route_of(answer.request)
        if route is None:
            return
        about, models = f"{route.method} {route.path}", models_of(route)
        if media_of(answer) == MEDIA_TYPE:
            await answer.aread()
            model = UnreadyView if route.path == "/readyz" else ProblemView
            assert misfits(answer.content, model) == [], about
            given = (answer.status_code, answer.json()["code"])
            assert given in documented_codes(route), f"{about}: {given}"
            return
        assert answer.status_code in models, f"{about}: {answer.status_code}"
        declared = models[answer.status_code]
        if declared is None or media_of(answer) != JSON:
            return
        await answer.aread()
        assert misfits(answer.content, declared) == [], about
        self.seen.add((route.method, route.path))
