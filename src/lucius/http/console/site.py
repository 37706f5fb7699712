"""What every page has in common: templates, headers, the frame around its content, and how it refuses."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson
from fastapi import APIRouter, Depends
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Message

from lucius.core.text import event_name, printable, printable_json, printable_lines
from lucius.http.console.live import Pulse
from lucius.http.console.sessions import Seals
from lucius.http.context import ApiContext, Caller, Role
from lucius.http.document import body_of
from lucius.http.problems import Problem, rendered
from lucius.http.routing import (
    ApiRoute,
    Context,
    Endpoint,
    KnownCaller,
    ShortRoute,
    known_caller,
    needs,
)
from lucius.http.views import instant

# The console's way to the API: the same routes, asked inside the process, as whoever is signed in.

_JSON_BODY: Final = [(b"content-type", b"application/json")]


class Api:
    """What a caller may not ask over HTTP, nobody may ask for them here: roles and tenants are checked."""

    def __init__(self, context: ApiContext, routes: Sequence[ApiRoute]) -> None:
        self._context = context
        self._routes = {route.operation_id: route for route in routes}

    def may(self, caller: Caller, name: str) -> bool:
        route = self._routes.get(name)
        if route is None or not route.access.is_open_to(caller):
            return False
        return caller.tenants is None or not route.access.every_tenant

    def takes(self, name: str, field: str) -> bool:
        """Whether the body of a route has such a field."""
        route = self._routes.get(name)
        body = body_of(route) if route is not None else None
        return body is not None and field in body.model_fields

    async def ask_if_may(
        self, request: Request, caller: Caller, name: str, path: Mapping[str, str] | None = None
    ) -> Any:
        """None where the caller may not know, or this process does not."""
        if not self.may(caller, name):
            return None
        try:
            return await self.ask(request, caller, name, path=path)
        except Problem as problem:
            if problem.known.code == "NOT_SUPPORTED":
                return None
            raise

    async def ask(
        self,
        request: Request,
        caller: Caller,
        name: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """What the route answers. Raises what it raises."""
        if not self.may(caller, name):
            raise Problem("FORBIDDEN", f"this is not for the roles and tenants of {caller.name}")
        route = self._routes[name]
        content = b"" if body is None else orjson.dumps(body)

        async def receive() -> Message:
            return {"type": "http.request", "body": content, "more_body": False}

        scope = {
            **request.scope,
            "method": route.method,
            "path_params": dict(path or {}),
            "query_string": urlencode(query or {}, doseq=True).encode(),
            "headers": _JSON_BODY,
        }
        return await route.answer_inside(Request(scope, receive), self._context, caller)


# How values read on a page: instants, durations, states, JSON. Filters of the templates.

_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
TONES: Final = {
    "SUCCEEDED": "good",
    "DONE": "good",
    "COMMITTED": "good",
    "FAILED_FINAL": "bad",
    "ABORTED": "bad",
    "FAILED_RETRY": "warn",
    "CANCELLED": "off",
    "CANCELLING": "warn",
    "PAUSED": "warn",
    "PAUSING": "warn",
    "IN_PROGRESS": "busy",
}


def moment(value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value)


def duration(span: timedelta | float | None) -> str:
    """With two figures or so: `340 ms`, `2.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if span is None:
        return ""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if seconds < 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return _in_two_units(round(seconds))


def _in_two_units(seconds: int) -> str:
    for index, (unit, size) in enumerate(_UNITS):
        if seconds >= size:
            first = f"{seconds // size} {unit}"
            if index + 1 == len(_UNITS):
                return first
            smaller, smaller_size = _UNITS[index + 1]
            rest = seconds % size // smaller_size
            return f"{first} {rest} {smaller}" if rest else first
    return "0 s"


def rough(span: timedelta) -> str:
    """As `duration`, but from ten minutes on in one unit, and from one second on without parts of it."""
    seconds = round(span.total_seconds())
    for unit, size in _UNITS[:-1]:
        if seconds >= 10 * size or (size > 60 and seconds >= 2 * size):
            return f"{seconds // size} {unit}"
    return _in_two_units(seconds)


def ago(value: Any, now: datetime) -> Markup:
    """How long ago, or in how long; the instant itself is in its title."""
    at = moment(value)
    if at is None:
        return Markup("")
    span = now - at
    text = f"{rough(span)} ago" if span >= timedelta(0) else f"in {rough(-span)}"
    if abs(span) < timedelta(seconds=1):
        text = "now"
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(instant(at), text)


def clock(value: Any) -> Markup:
    """The instant, to the millisecond, in UTC."""
    at = moment(value)
    if at is None:
        return Markup("")
    text = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"
    return Markup('<time datetime="{}">{}</time>').format(instant(at), text)


def pretty(value: Any) -> Markup:
    """JSON on several lines, with nothing in it that could reorder them."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return escape(printable_json(text))


def compact(value: Any) -> Markup:
    """JSON on one line."""
    return escape(printable_json(json.dumps(value, ensure_ascii=False, default=str)))


def reference(value: Any) -> str:
    """The URI of a reference that has no more than one."""
    if isinstance(value, dict) and set(value) == {"uri"}:
        value = value["uri"]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def coded(text: str) -> Markup:
    """Our own prose: what stands between backticks is code."""
    parts = printable_lines(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else part
        for index, part in enumerate(parts)
    )


def lines(values: list[str]) -> Markup:
    """Each on a line of its own."""
    return Markup("<br>").join(printable(value) for value in values)


def state(value: str) -> str:
    """As a person says it."""
    return value.replace("_", " ").lower()


def event_named(event: dict[str, Any]) -> str:
    return event_name(event["event_type"], event["moves"])


def tone(value: str) -> str:
    return TONES.get(value, "idle")


def number(value: int) -> str:
    return f"{value:,}"


FILTERS: Final = {
    "ago": ago,
    "clock": clock,
    "coded": coded,
    "compact": compact,
    "duration": duration,
    "event_name": event_named,
    "lines": lines,
    "number": number,
    "pretty": pretty,
    "reference": reference,
    "state": state,
    "tone": tone,
}


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
    made.filters |= FILTERS
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
