"""Every route of the API as the OpenAPI document lists it, and a request for each."""

from dataclasses import dataclass
from typing import Any

import httpx
from starlette.requests import Request

from lucius.http.app import create_app, routes_in
from lucius.http.context import Caller
from lucius.http.problems import Problem
from tests.api.world import ENVELOPE, World, context_of

PARTS = {"service": "ocr-service", "group": "f0", "planId": "plan_0"}
"""What stands for a part of a path that is no job."""
PUBLIC = {"/healthz", "/readyz"}
"""Open to everyone by design: they name no tenant."""
PUBLIC_PAGES = {"/openapi.json", "/asyncapi.json"}
"""About the API itself; the document does not list it."""


@dataclass(frozen=True)
class DocumentedRoute:
    method: str
    path: str
    document: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def needs(self) -> str | None:
        """`caller`, `callback_token`, or nothing."""
        schemes = [name for each in self.document.get("security", []) for name in each]
        return schemes[0] if schemes else None

    @property
    def roles(self) -> list[str]:
        """One of them is enough."""
        return [self.document["x-lucius-role"], *self.document.get("x-lucius-also", ())]

    @property
    def for_every_tenant(self) -> bool:
        return bool(self.document["x-lucius-every-tenant"])

    @property
    def of_a_job(self) -> bool:
        return "{jobId}" in self.path

    def documents(self, status: int, code: str) -> bool:
        answers = self.document["responses"]
        return str(status) in answers and f"`{code}`" in answers[str(status)]["description"]

    async def ask(
        self, client: httpx.AsyncClient, credentials: str | None, job_id: str = "job_0"
    ) -> httpx.Response:
        path = self.path.format_map({"jobId": job_id, **PARTS})
        headers = {"authorization": f"Bearer {credentials}"} if credentials is not None else {}
        body = self.body(job_id) if self.method == "POST" else None
        return await client.request(self.method, path, json=body, headers=headers)

    def body(self, job_id: str) -> dict[str, Any]:
        if self.path in ("/v1/orchestrate", "/v1/commands"):
            return ENVELOPE
        if self.path.startswith("/v1/callbacks/"):
            bound = {"stepId": "ocr", "attempt_no": 1, "lease_id": "lease_1"}
            return {"jobId": job_id, **bound, "status": "SUCCEEDED"}
        if self.path.startswith("/v1/jobs:"):
            return {"filter": {}}
        return {"replies": []} if self.path.endswith("/replies") else {}


async def _nobody(request: Request) -> Caller:
    raise Problem("UNAUTHENTICATED")


_APP = create_app(context_of(World(), authenticate=_nobody))
ROUTES = [
    DocumentedRoute(method.upper(), path, document)
    for path, methods in _APP.openapi()["paths"].items()
    for method, document in methods.items()
]
GUARDED = [route for route in ROUTES if route.needs == "caller"]
CALLBACKS = [route for route in ROUTES if route.needs == "callback_token"]
OPEN = {route.path for route in ROUTES if route.needs is None}
UNDOCUMENTED = {
    route.path
    for route in routes_in(_APP.routes)
    if route.path not in {each.path for each in ROUTES}
}
