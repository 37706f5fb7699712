"""Signing in and out: with an API key, or over OIDC."""

import asyncio
import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx
import jwt
import orjson
from starlette.requests import Request
from starlette.responses import Response

from lucius.core.addresses import is_guarded
from lucius.core.errors import LuciusError
from lucius.http.access import FETCH_SECONDS, JwtAccess, bounded, unauthenticated
from lucius.http.console.orders import form_of
from lucius.http.console.sessions import COOKIE, Sessions, same
from lucius.http.console.site import HEADERS, Pages, Site
from lucius.http.context import Caller
from lucius.http.problems import Problem, rendered
from lucius.http.routing import Context, KnownCaller

# Signing in at an OIDC issuer: authorization code with PKCE. Tokens are judged as those of the API are.

DISCOVERY: Final = "/.well-known/openid-configuration"
PENDING_SECONDS: Final = 600
"""Within so much time, whoever went to the issuer comes back."""
ENDPOINTS_SECONDS: Final = 60
"""Issuers move their endpoints rarely. Anyone may begin to sign in, so they are not asked for each time."""
AT_ONCE: Final = 8
"""Questions to the issuer: anyone may cause one."""
CALLBACK: Final = "/sign-in/done"


@dataclass(frozen=True, slots=True)
class OidcClient:
    """`url`: where browsers reach the console; empty: where they say they do."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: str = "openid"
    url: str = ""


class Oidc:
    def __init__(
        self,
        client: OidcClient,
        access: JwtAccess,
        now: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = client
        self._access = access
        self._now = now
        self._transport = transport
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._finding: asyncio.Task[dict[str, Any]] | None = None
        self._found: tuple[float, dict[str, Any]] | None = None

    async def begin(self, request: Request, target: str) -> tuple[str, dict[str, Any]]:
        """The address at the issuer, and what the browser keeps until it comes back."""
        found = await self._endpoints()
        endpoint = found["authorization_endpoint"]
        verifier, state, nonce = token_urlsafe(48), token_urlsafe(24), token_urlsafe(24)
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        query = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._callback(request),
            "scope": self._client.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(endpoint).query else "?"
        pending = {
            "verifier": verifier,
            "state": state,
            "nonce": nonce,
            "next": target,
            "until": self._now() + PENDING_SECONDS,
            "names_issuer": found["names_issuer"],
        }
        return f"{endpoint}{joint}{urlencode(query)}", pending

    async def finish(self, request: Request, pending: Mapping[str, Any] | None) -> Caller:
        """Who came back. Raises the 401 that says why nobody did."""
        query = request.query_params
        begun = pending is not None and self._now() < pending.get("until", 0)
        if pending is None or not begun or not same(query.get("state", ""), pending["state"]):
            raise unauthenticated(
                "this sign-in was not begun in this browser, or too long ago: begin again"
            )
        told = query.get("iss", self._client.issuer if not pending.get("names_issuer") else "")
        if told != self._client.issuer:  # RFC 9207: an answer of another issuer is none of ours
            raise unauthenticated("the answer comes from another issuer: begin again")
        if "error" in query or not query.get("code"):
            said = query.get("error_description") or query.get("error") or "no code came back"
            raise unauthenticated(f"the issuer refused: {said[:300]}")
        tokens = await self._tokens(request, query["code"], pending["verifier"])
        return await self._access.caller(_judged(tokens, pending["nonce"]))

    async def _tokens(self, request: Request, code: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._callback(request),
            "client_id": self._client.client_id,
            "code_verifier": verifier,
        }
        if self._client.client_secret:
            form["client_secret"] = self._client.client_secret
        endpoint = (await self._endpoints())["token_endpoint"]
        return await self._asked("POST", endpoint, data=form)

    def _callback(self, request: Request) -> str:
        base = self._client.url or f"{request.url.scheme}://{request.url.netloc}"
        return f"{base.rstrip('/')}{CALLBACK}"

    async def _endpoints(self) -> dict[str, Any]:
        """As the issuer has named them lately. Those who ask at once share its answer, or its silence."""
        if self._found is not None and self._now() < self._found[0]:
            return self._found[1]
        if self._finding is None or self._finding.done():
            self._finding = asyncio.create_task(self._discovered())
        endpoints = await asyncio.shield(self._finding)
        self._found = (self._now() + ENDPOINTS_SECONDS, endpoints)
        return endpoints

    async def _discovered(self) -> dict[str, Any]:
        """`names_issuer`: whether every answer of the issuer says whose it is."""
        found = await self._asked("GET", self._client.issuer.rstrip("/") + DISCOVERY)
        named = "authorization_response_iss_parameter_supported"
        endpoints: dict[str, Any] = {"names_issuer": found.get(named) is True}
        for name in ("authorization_endpoint", "token_endpoint"):
            address = found.get(name)
            if not isinstance(address, str) or not is_guarded(address):
                raise Problem("AUTHENTICATION_UNAVAILABLE", f"the issuer names no {name} on https")
            endpoints[name] = address
        if found.get("issuer") != self._client.issuer:
            raise Problem("AUTHENTICATION_UNAVAILABLE", "the issuer calls itself by another name")
        return endpoints

    async def _asked(self, method: str, address: str, **more: Any) -> dict[str, Any]:
        headers = {"accept": "application/json"}
        try:
            async with (
                self._asking,
                asyncio.timeout(FETCH_SECONDS),
                httpx.AsyncClient(
                    timeout=FETCH_SECONDS, transport=self._transport, trust_env=False
                ) as client,
                client.stream(method, address, headers=headers, **more) as answer,
            ):
                said = await bounded(answer)
            content = orjson.loads(said)
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            detail = "the issuer does not answer; try again in a moment"
            raise Problem("AUTHENTICATION_UNAVAILABLE", detail) from error
        if method == "POST" and 400 <= answer.status_code < 500:
            raise unauthenticated("the issuer took the code for no token: begin again")
        if answer.status_code != 200 or not isinstance(content, dict):
            detail = f"the issuer answered with status {answer.status_code}; try again in a moment"
            raise Problem("AUTHENTICATION_UNAVAILABLE", detail)
        return content


def _judged(tokens: Mapping[str, Any], nonce: str) -> str:
    """The access token if it is a JWT, as the API takes it; else the id token.

    An id token must be of this sign-in, whichever is taken.
    """
    access, identity = tokens.get("access_token"), tokens.get("id_token")
    signed = access if isinstance(access, str) and access.count(".") == 2 else None
    if not isinstance(identity, str):
        if signed is not None:
            return signed
        raise unauthenticated(
            "the issuer gave neither an access token that is a JWT nor an id token"
        )
    try:
        claims = jwt.decode(identity, options={"verify_signature": False})
    except jwt.PyJWTError:
        raise unauthenticated("the issuer's id token cannot be read") from None
    if not same(str(claims.get("nonce")), nonce):
        raise unauthenticated("the issuer's id token belongs to another sign-in: begin again")
    return signed or identity


PENDING: Final = "lucius_console_sign_in"
"""Lives while somebody is at the issuer."""


async def _after(next: str = "") -> None:
    """Where to go then."""


async def _answered(
    code: str = "",
    state: str = "",
    error: str = "",
    error_description: str = "",
    error_uri: str = "",
    iss: str = "",
    session_state: str = "",
) -> None:
    """From the issuer."""


class SigningIn:
    """`oidc` is None where API keys are used, or where no client of the issuer is configured."""

    def __init__(self, site: Site, sessions: Sessions, oidc: Oidc | None, *, https: bool) -> None:
        self._site = site
        self._sessions = sessions
        self._oidc = oidc
        self._https = https

    async def sign_in(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        return self._form(request, local(request.query_params.get("next"), self._site.root))

    def _form(self, request: Request, target: str, status: int = 200, fault: str = "") -> Response:
        return self._site.page(
            request,
            None,
            "sign_in.html",
            status,
            keys=self._sessions.keys is not None,
            oidc=self._oidc is not None,
            target=target,
            fault=fault,
        )

    async def sign_in_with_key(
        self, context: Context, request: Request, caller: KnownCaller
    ) -> Response:
        fields = await form_of(self._site, request)
        target = local(fields.get("next", [""])[0], self._site.root)
        try:
            found = await self._sessions.caller_with(fields.get("key", [""])[0])
        except Problem as refused:
            known, detail, _, _ = rendered(refused)
            return self._form(request, target, known.status, detail)
        return self._signed_in(request, found, target)

    def _signed_in(self, request: Request, caller: Caller, target: str) -> Response:
        cookie, seconds = self._sessions.begin(caller)
        response = self._site.to(target.removeprefix(self._site.root))
        self._keep(request, response, COOKIE, cookie, seconds, "strict")
        return response

    def _keep(
        self,
        request: Request,
        response: Response,
        name: str,
        value: str,
        seconds: int,
        same_site: str,
    ) -> None:
        response.set_cookie(
            self._site.seals.prefix + name,
            value,
            max_age=seconds,
            path=self._site.root or "/",
            secure=self._secure(request),
            httponly=True,
            samesite="strict" if same_site == "strict" else "lax",
        )

    def _secure(self, request: Request) -> bool:
        """Whether the browser came over https, as far as anyone says so."""
        origin = request.headers.get("origin", "")
        return self._https or request.url.scheme == "https" or origin.startswith("https://")

    async def sign_out(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        await form_of(self._site, request)
        await self._sessions.end(request)
        response = self._site.to("/sign-in")
        self._forget(request, response, COOKIE)
        return response

    def _forget(self, request: Request, response: Response, name: str) -> None:
        self._keep(request, response, name, "", 0, "strict")

    async def go_to_issuer(
        self, context: Context, request: Request, caller: KnownCaller
    ) -> Response:
        if self._oidc is None:
            raise Problem("NOT_FOUND")
        target = local(request.query_params.get("next"), self._site.root)
        address, pending = await self._oidc.begin(request, target)
        response = Response(status_code=303, headers={**HEADERS, "location": address})
        sealed = self._site.seals.close("sign-in", pending)
        # Lax: the way back from the issuer is a link from another site.
        self._keep(request, response, PENDING, sealed, PENDING_SECONDS, "lax")
        return response

    async def come_from_issuer(
        self, context: Context, request: Request, caller: KnownCaller
    ) -> Response:
        if self._oidc is None:
            raise Problem("NOT_FOUND")
        seals = self._site.seals
        pending = seals.open("sign-in", seals.cookie_of(request, PENDING) or "")
        try:
            found = await self._oidc.finish(request, pending)
            cookie, seconds = self._sessions.begin(found)
        except LuciusError as refused:
            known, detail, _, _ = rendered(refused)
            return self._form(request, f"{self._site.root}/", known.status, detail)
        target = local(str((pending or {}).get("next", "")), self._site.root)
        # A page of ours, and not a redirect: on a way that began elsewhere no strict cookie is sent.
        response = self._site.page(request, None, "signed_in.html", target=target)
        self._keep(request, response, COOKIE, cookie, seconds, "strict")
        self._forget(request, response, PENDING)
        return response

    def add_to(self, pages: Pages) -> None:
        pages.add("GET", "/sign-in", self.sign_in, None, takes=_after)
        pages.add("POST", "/sign-in", self.sign_in_with_key, None)
        pages.add("POST", "/sign-out", self.sign_out, None)
        pages.add("GET", "/sign-in/oidc", self.go_to_issuer, None, takes=_after)
        pages.add("GET", "/sign-in/done", self.come_from_issuer, None, takes=_answered)


def local(target: str | None, root: str) -> str:
    """Where to go after signing in: a path of ours, whatever a link says."""
    home = f"{root}/"
    if not target or not target.startswith(home) or target.startswith("//") or "\\" in target:
        return home
    parts = urlsplit(target)
    plain = not parts.scheme and not parts.netloc and target.isprintable()
    return target if plain and not parts.path.startswith(f"{root}/sign-") else home
