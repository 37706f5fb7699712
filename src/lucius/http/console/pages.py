"""All pages of the console: routes that run beside those of the API. Built by bootstrap."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import time
from urllib.parse import urlsplit

from lucius.http.access import JwtAccess
from lucius.http.app import ROUTES, Section
from lucius.http.console.job import OneJob
from lucius.http.console.lists import Jobs, Overviews, Search
from lucius.http.console.live import Pulse
from lucius.http.console.now import Now
from lucius.http.console.orders import Orders, Plans
from lucius.http.console.reference import add_docs
from lucius.http.console.sessions import EndedSessions, Seals, Sessions, cookie_prefix
from lucius.http.console.signing_in import Oidc, OidcClient, SigningIn
from lucius.http.console.site import Api, Assets, Site, Templates, add_assets
from lucius.http.context import ApiContext
from lucius.http.keys import KnownKeys
from lucius.ports.leases import LeaseStore


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """`url`: where browsers reach the console; empty: where they say they do. `records` are the ledger's."""

    records: LeaseStore
    url: str = ""
    session_seconds: float = 8 * 3600.0
    keys: KnownKeys | None = None
    access: JwtAccess | None = None
    oidc: OidcClient | None = None
    epoch: str = ""


def console(
    context: ApiContext, options: ConsoleOptions, now: Callable[[], float] = time
) -> Section:
    """The context is that of the API; whoever asks here is known by their session."""
    signs_in = context.authenticate is not None
    seals = Seals(context.tokens, cookie_prefix(options.url))
    ended = EndedSessions(options.records, now)
    sessions = Sessions(
        seals, options.session_seconds, now, ended, keys=options.keys, epoch=options.epoch
    )
    inner = replace(context, authenticate=sessions if signs_in else None)
    site = Site(
        api=Api(inner, ROUTES),
        seals=seals,
        assets=Assets(),
        templates=Templates(),
        pulse=Pulse(),
        now=lambda: datetime.fromtimestamp(now(), UTC),
        root=context.options.root_path,
        url=options.url.rstrip("/"),
        signs_in=signs_in,
    )
    pages = site.router(inner)
    Now(site).add_to(pages)
    Orders(site).add_to(pages)
    Jobs(site).add_to(pages)
    Search(site).add_to(pages)
    OneJob(site).add_to(pages)
    Overviews(site).add_to(pages)
    Plans(site).add_to(pages)
    if context.options.docs:
        add_docs(pages, site)
    if signs_in:
        https = options.url.startswith("https://")
        SigningIn(site, sessions, _oidc(options, now), https=https).add_to(pages)
    add_assets(pages, site)
    return Section(pages, site.refuse)


def _oidc(options: ConsoleOptions, now: Callable[[], float]) -> Oidc | None:
    if options.oidc is None or options.access is None:
        return None
    return Oidc(options.oidc, options.access, now)


def root_path_of(url: str) -> str:
    """The path of the console's URL, as it stands in front of every link."""
    return urlsplit(url).path.rstrip("/")
