"""Codes of requests that cannot be read."""

from typing import Final

from lucius.contract.codes.kinds import ProblemCode

READING: Final = (
    ProblemCode(
        "INVALID_HTTP",
        400,
        "The request is not valid HTTP",
        "The request line, a header or the framing of the body cannot be read, so the connection was"
        " closed without looking further.",
        "Send HTTP/1.1. TLS belongs to a proxy in front of this server.",
    ),
    ProblemCode(
        "INVALID_HOST",
        400,
        "The request names no host, or several",
        "A request of HTTP/1.1 has exactly one `Host` header. Where there are two, a proxy and this server"
        " might each believe another, so the connection was closed without looking further.",
        "Send one `Host` header. If a proxy is in between, see that it replaces the header.",
    ),
    ProblemCode(
        "INVALID_TARGET",
        400,
        "The target of the request is not a path",
        "The request line names a whole URL (as for a proxy), `*` or an authority. LUCIUS is no proxy, and"
        " the host belongs into the `Host` header alone.",
        "Send the path alone, such as `GET /v1/jobs HTTP/1.1`.",
    ),
    ProblemCode(
        "INVALID_JSON",
        400,
        "The body is not valid JSON",
        "The body could not be read as one JSON document in UTF-8. NaN, Infinity and"
        " numbers beyond what a double holds are not taken.",
        "Send one JSON document, encoded as UTF-8 without a byte order mark.",
    ),
    ProblemCode(
        "DUPLICATE_KEY",
        400,
        "An object names a key twice",
        "A JSON object in the body has the same key more than once, so its meaning is ambiguous.",
        "Send each key once.",
    ),
    ProblemCode(
        "NESTING_TOO_DEEP",
        400,
        "The body is nested too deeply",
        "Objects and arrays may be nested 64 levels deep.",
        "Flatten the document, or put it into an object store and send a reference.",
    ),
    ProblemCode(
        "INVALID_BODY",
        422,
        "The body has the wrong shape",
        "The body is JSON, but not the object that this route takes. `errors` names the fields.",
        "Compare the body with the schema of the route in `/openapi.json`.",
    ),
    ProblemCode(
        "INVALID_PARAMETER",
        422,
        "A parameter is not valid",
        "A query parameter or header has a value that this route does not take. `errors` names it.",
        "Correct the parameter.",
    ),
    ProblemCode(
        "UNKNOWN_PARAMETER",
        422,
        "There is no such query parameter",
        "The query names a parameter that this route does not have. A filter with a slip of the pen would"
        " otherwise match everything. `errors` names it.",
        "Correct the name, or leave the parameter out; `/openapi.json` lists those of each route.",
    ),
    ProblemCode(
        "INVALID_CURSOR",
        422,
        "The cursor is not valid here",
        "A cursor continues one listing: it holds for the filters and the caller it was made for.",
        "Start the listing again without a cursor.",
    ),
    ProblemCode(
        "BODY_TOO_LARGE",
        413,
        "The body is too large",
        "The body is larger than this server accepts.",
        "Put the content into an object store and send a reference to it.",
    ),
    ProblemCode(
        "PAYLOAD_TOO_LARGE",
        413,
        "The request does not fit into the ledger or a directive",
        "A stored row or a rendered directive of this request would exceed the limits that hold on"
        " every backend alike.",
        "Shorten the payload, or put it into an object store and send a reference to it.",
    ),
    ProblemCode(
        "UNSUPPORTED_MEDIA_TYPE",
        415,
        "The body is not sent as JSON",
        "This route takes `application/json`.",
        "Send the header `Content-Type: application/json`.",
    ),
    ProblemCode(
        "NOT_FOUND",
        404,
        "There is no such route",
        "The path names nothing that this server has.",
        "Look at `/openapi.json` for what there is.",
    ),
    ProblemCode(
        "METHOD_NOT_ALLOWED",
        405,
        "The route does not take this method",
        "The path exists, but not with this method. `Allow` names those it takes.",
        "Use one of the methods in `Allow`.",
    ),
)
