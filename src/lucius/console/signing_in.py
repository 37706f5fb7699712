"""Signing in and out: with an API key, or over OIDC."""

from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import Caller
from lucius.api.problems import Problem, rendered
from lucius.api.routing import Context, KnownCaller
from lucius.console.oidc import PENDING_SECONDS, Oidc
from lucius.console.orders import form_of
from lucius.console.sessions import COOKIE, Sessions
from lucius.console.site import HEADERS, Pages, Site
from lucius.core.errors import LuciusError

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
