"""Codes of who asks, and how often."""

from typing import Final

from lucius.contract.codes.kinds import ProblemCode

CALLERS: Final = (
    ProblemCode(
        "UNAUTHENTICATED",
        401,
        "The caller is not known",
        "The request has no credentials, or they are not valid or have expired.",
        "Send an API key or a token as `Authorization: Bearer`.",
    ),
    ProblemCode(
        "FORBIDDEN",
        403,
        "The caller may not do this",
        "The caller is known, but lacks the role that this route needs.",
        "Use credentials with that role.",
    ),
    ProblemCode(
        "OTHER_USER",
        403,
        "The server runs for another user of this machine",
        "While authentication is off, LUCIUS serves only the user who runs it, and root. The kernel says"
        " whose a connection is. It does not say so of a connection that comes from another network"
        " namespace (a container), or where the system has no `/proc`: such a connection is refused too.",
        "Set `LUCIUS_AUTH=keys`, make a key with `lucius keys create`, and send it. If the server is"
        " yours, call it through `lucius.sock` in its data directory.",
    ),
    ProblemCode(
        "TENANT_FORBIDDEN",
        403,
        "The caller may not act for this tenant",
        "Callers are bound to tenants; `tenant_id` is not one of the caller's.",
        "Use credentials of that tenant.",
    ),
    ProblemCode(
        "AUTHENTICATION_UNAVAILABLE",
        503,
        "Callers cannot be checked at the moment",
        "The keys that credentials are checked with cannot be read or fetched. Nothing was done.",
        "Repeat the request later, unchanged.",
        retry_after=True,
    ),
    ProblemCode(
        "RATE_LIMITED",
        429,
        "The caller sends too many requests",
        "Requests of a caller are limited to so many a second, and so are replies for a tenant. Nothing"
        " was done.",
        "Repeat the request later, unchanged.",
        retry_after=True,
    ),
    ProblemCode(
        "TOO_MANY_WAITING",
        429,
        "Too many requests of the caller wait at once",
        "Event streams, long polls (`wait_seconds`) and pulls hold a connection while they wait. A caller"
        " may have 250 of them at once, or an address where callers are not known. Nothing was done.",
        "End some of them, ask without waiting, or give each worker an API key of its own.",
        retry_after=True,
    ),
    ProblemCode(
        "TOO_MANY_CONNECTIONS",
        429,
        "The address has too many connections",
        "This address has 1,000 connections already. Those beyond are answered once, and only for"
        " `/healthz`, `/readyz` and operators. Nothing was done.",
        "Use connections again instead of opening new ones, and close those that are not needed. Behind a"
        " proxy all clients have its address: let it hold the connections of clients itself.",
        retry_after=True,
    ),
    ProblemCode(
        "CONNECTIONS_EXHAUSTED",
        503,
        "The server has too many connections",
        "All 2,000 connections are in use. Those beyond are answered once, and only for"
        " `/healthz`, `/readyz` and operators. Nothing was done.",
        "Repeat the request later, unchanged. If it happens often, run more orchestrators.",
        retry_after=True,
    ),
    ProblemCode(
        "MISDIRECTED_REQUEST",
        421,
        "The request is for another host",
        "While authentication is off, LUCIUS answers only to the names of this machine's loopback,"
        " so that no web page can reach it under a name of its own.",
        "Use `http://127.0.0.1` or `http://localhost`, or turn authentication on.",
    ),
    ProblemCode(
        "HEADERS_TOO_LARGE",
        431,
        "The request's head is too large",
        "The request line, the headers or the trailers of a chunked body are larger or more than this"
        " server accepts.",
        "Send fewer and shorter headers; a body belongs into the body.",
    ),
    ProblemCode(
        "REQUEST_TIMEOUT",
        408,
        "The request did not arrive in time",
        "The head or the body of the request was not complete within the time that clients have for it"
        " (10 and 30 seconds). Nothing was done, and the connection is closed.",
        "Repeat the request on a new connection.",
    ),
    ProblemCode(
        "CROSS_ORIGIN",
        403,
        "A web page of another origin may not do this",
        "The request came from a browser on a page of another origin: `Origin` or `Sec-Fetch-Site` says so.",
        "Call the API from a program, or from a page of the same origin.",
    ),
)
