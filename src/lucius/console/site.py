"""What every page has in common: templates, headers, the frame around its content, and how it refuses."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lucius.api.context import ApiContext, Caller, Role
from lucius.api.problems import rendered
from lucius.api.routing import Context, Endpoint, KnownCaller, ShortRoute, known_caller, needs
from lucius.console import words
from lucius.console.asking import Api
from lucius.console.live import Pulse
from lucius.console.sessions import Seals
from lucius.core.printable import printable

HERE: Final = Path(__file__).parent
HTML: Final = "text/html; charset=utf-8"
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every page. `same-origin`: with `no-referrer` browsers hide the origin of our own forms from us."""
MEDIA: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def finalized(value: Any) -> Any:
    """Foreign text shows as escapes what could reorder or hide a line; then it is escaped for HTML."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        finalize=finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= words.FILTERS
    return made


class Templates:
    """Compiled beside the loop, when somebody first looks: a loop should not stand still so long."""

    def __init__(self) -> None:
        self._environment = environment()
        self._compiling: asyncio.Task[None] | None = None

    async def compiled(self) -> None:
        if self._compiling is None:
            self._compiling = asyncio.create_task(asyncio.to_thread(self._compile))
        await asyncio.shield(self._compiling)

    def _compile(self) -> None:
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def render(self, name: str, data: dict[str, Any]) -> str:
        return self._environment.get_template(name).render(data)


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    media: str


class Assets:
    """The files that pages load, under addresses that change with their content."""

    def __init__(self) -> None:
        files = {path.name: path for path in (HERE / "assets").iterdir() if path.suffix in MEDIA}
        self.files = {
            name: Asset(path.read_bytes(), MEDIA[path.suffix]) for name, path in files.items()
        }
        together = b"".join(self.files[name].content for name in sorted(self.files))
        self.version = hashlib.sha256(together).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Site:
    """`signs_in`: whether people say who they are here. `root`: the path in front of every link.

    `url`: where browsers reach the console; empty: where they say they do.
    """

    api: Api
    seals: Seals
    assets: Assets
    templates: Templates
    pulse: Pulse
    now: Callable[[], datetime]
    root: str = ""
    url: str = ""
    signs_in: bool = False

    def page(
        self, request: Request, caller: Caller | None, template: str, status: int = 200, **data: Any
    ) -> Response:
        """`caller` is None where nobody is signed in."""
        frame = {
            "root": self.root,
            "assets": f"{self.root}/assets/{self.assets.version}",
            "caller": caller,
            "signs_in": self.signs_in,
            "form_token": self.seals.form_token(request),
            "here": f"{self.root}{request.url.path.removeprefix(self.root)}",
            "address": self.address(request),
            "now": self.now(),
            "may": lambda name: caller is not None and self.api.may(caller, name),
        }
        text = self.templates.render(template, frame | data)
        return Response(text, status, dict(HEADERS), media_type=HTML)

    def address(self, request: Request) -> str:
        """Of this page, as a link."""
        query = request.url.query
        path = quote(request.url.path.removeprefix(self.root))
        return f"{self.root}{path}{'?' + query if query else ''}"

    def to(self, path: str, **query: str) -> Response:
        """Send the browser on, after something was done."""
        tail = f"?{urlencode(query)}" if query else ""
        return RedirectResponse(f"{self.root}{path}{tail}", 303, dict(HEADERS))

    def refuse(self, request: Request, error: Exception) -> Response:
        """An error as a page. Who is not signed in is sent to where they can be."""
        known, detail, faults, headers = rendered(error)
        if known.status == 401 and self.signs_in:
            return self._to_sign_in(request)
        caller: Caller | None = getattr(request.state, "caller", None)
        response = self.page(
            request,
            caller,
            "refusal.html",
            known.status,
            code=known.code,
            detail=detail,
            faults=faults,
        )
        if "retry-after" in headers:
            response.headers["retry-after"] = headers["retry-after"]
        return response

    def _to_sign_in(self, request: Request) -> Response:
        """A script must not show the sign-in page inside of another: it is told to go there."""
        query = {"next": self.address(request)} if request.method == "GET" else {}
        streams = "text/event-stream" in request.headers.get("accept", "")
        if streams or "hx-request" in request.headers:
            target = f"{self.root}/sign-in"
            return Response(status_code=401, headers={**HEADERS, "hx-redirect": target})
        return self.to("/sign-in", **query)

    def router(self, inner: ApiContext) -> "Pages":
        """For pages: whoever asks is known by their session, and errors are pages, too."""
        site = self

        class PageRoute(ShortRoute):
            context = inner

            def answering(self) -> Endpoint:
                handler = self.endpoint
                knows_caller = self.access.role is not None

                async def answer(request: Request) -> Response:
                    return await site.answered(handler, inner, request, knows_caller=knows_caller)

                return answer

            def refuse(self, request: Request, error: Exception) -> Response:
                return site.refuse(request, error)

        return Pages(route_class=PageRoute, tags=["console"], include_in_schema=False)

    async def answered(
        self,
        handler: Callable[..., Awaitable[Response]],
        context: ApiContext,
        request: Request,
        *,
        knows_caller: bool,
    ) -> Response:
        await self.templates.compiled()
        caller = known_caller(request)
        if knows_caller:
            request.state.caller = caller  # a refusal shows the same frame
        response = await handler(context, request, caller)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response


class Pages(APIRouter):
    """The router of the console."""

    def add(
        self,
        method: str,
        path: str,
        handler: Callable[..., Any],
        role: Role | None = Role.READ,
        *,
        takes: Callable[..., Any] | None = None,
    ) -> None:
        """`takes` declares the query parameters of a page, which reads them itself."""
        asked = [] if takes is None else [Depends(takes)]
        self.add_api_route(
            path,
            handler,
            methods=[method],
            dependencies=[needs(role), *asked],
            response_model=None,
        )


def add_assets(pages: Pages, site: Site) -> None:
    async def console_asset(context: Context, request: Request, caller: KnownCaller) -> Response:
        found = site.assets.files.get(request.path_params["name"])
        if found is None or request.path_params["version"] != site.assets.version:
            return Response(status_code=404, headers=dict(HEADERS))
        headers = {**HEADERS, "cache-control": "public, max-age=31536000, immutable"}
        return Response(found.content, headers=headers, media_type=found.media)

    pages.add("GET", "/assets/{version}/{name}", console_asset, None)
