"""Half of a surrogate pair is no Unicode: wherever it comes from, it is refused and breaks nothing."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.http.access import JwtAccess, JwtPolicy
from tests.api.live import BOUND, ENVELOPE, live
from tests.api.world import World, client_of, context_of
from tests.security.issuer import AUDIENCE, ISSUER, Issuer
from tests.security.routes import GUARDED, ROUTES, DocumentedRoute

HALF = "\ud800"
ENCODED = "%ED%A0%80"
RAW = b"\xed\xa0\x80"


async def asked(route: DocumentedRoute, issuer: Issuer, token: str) -> httpx.Response:
    access = JwtAccess(JwtPolicy(ISSUER, AUDIENCE, issuer.url))
    async with client_of(context_of(World(), authenticate=access)) as client:
        return await route.ask(client, token)


@pytest.mark.parametrize(
    "claims", [{"sub": f"a{HALF}"}, {"tenants": ["a", HALF]}, {"tenants": HALF}]
)
@pytest.mark.parametrize("route", GUARDED, ids=str)
async def test_a_signed_claim_is_refused(
    route: DocumentedRoute, issuer: Issuer, claims: dict[str, Any]
) -> None:
    answer = await asked(route, issuer, issuer.token(**claims))
    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
    assert "Unicode" in answer.json()["detail"]


@pytest.mark.parametrize("claims", [{"aud": HALF}, {"iss": HALF}, {"roles": [HALF]}, {"jti": HALF}])
async def test_other_claims_do_no_harm(issuer: Issuer, claims: dict[str, Any]) -> None:
    answer = await asked(GUARDED[0], issuer, issuer.token(**claims))
    assert answer.status_code < 500
    key_id = issuer.signed(issuer.private["rsa"], "RS256", HALF)
    assert (await asked(GUARDED[0], issuer, key_id)).status_code == 401


@pytest.fixture
async def answers(tmp_path: Path) -> Any:
    async with live(tmp_path) as lucius:
        yield lucius.client


async def test_no_path_query_or_header_leads_to_a_defect(answers: httpx.AsyncClient) -> None:
    """Over the real ledger, on every route."""
    for route in ROUTES:
        plain = route.path.replace("{jobId}", "job_0").replace("{service}", "ocr")
        odd = route.path.replace("{jobId}", ENCODED).replace("{service}", ENCODED)
        names = [each["name"] for each in route.document.get("parameters", [])]
        paths = [odd, f"{plain}?{ENCODED}={ENCODED}", *(f"{plain}?{n}={ENCODED}" for n in names)]
        body = route.body("job_0") if route.method == "POST" else None
        for path in paths:
            answer = await answers.request(route.method, path, json=body)
            assert answer.status_code < 500 or answer.status_code == 501, path
        for name in ("authorization", "idempotency-key", "x-correlation-id", "traceparent"):
            header = [(name.encode(), RAW), (b"x-api-key", RAW)]
            answer = await answers.request(route.method, plain, json=body, headers=header)
            assert answer.status_code < 500 or answer.status_code == 501, (route, name)


@pytest.mark.parametrize("half", [b"\\ud800", RAW])
async def test_no_body_leads_to_a_defect(answers: httpx.AsyncClient, half: bytes) -> None:
    reply = {**dict.fromkeys(BOUND, "x"), "attempt_no": 1, "callback_token": "HALF"}
    bodies: dict[str, Any] = {
        "/v1/orchestrate": {**ENVELOPE, "tenant_id": "HALF"},
        "/v1/jobs:cancel": {"filter": {"tenant_id": "HALF"}},
        "/v1/services/ocr/replies": {"replies": [reply]},
    }
    for path, body in bodies.items():
        content = json.dumps(body).encode().replace(b"HALF", half)
        answer = await answers.post(path, content=content)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_JSON"), path
