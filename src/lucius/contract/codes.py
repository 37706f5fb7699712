"""Every error code there is: its status, its meaning, what to do about it.

OpenAPI and the reference page are made from this. A route names those that it answers with.
"""

from dataclasses import dataclass
from typing import Final

# What is known of an error code.


@dataclass(frozen=True, slots=True)
class ProblemCode:
    code: str
    status: int
    title: str
    explanation: str
    action: str
    retry_after: bool = False


# Codes of requests that cannot be read.

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


# Codes of commands that are not taken.

ENVELOPE: Final = (
    ProblemCode(
        "INVALID_ENVELOPE",
        422,
        "The command is not valid",
        "Fields of the envelope are missing, have the wrong type, or cannot be stored unchanged (an"
        " integer beyond 64 bits, invalid Unicode). `errors` lists every one.",
        "Correct the fields that `errors` points to. Send long numbers as strings.",
    ),
    ProblemCode(
        "UNSUPPORTED_SCHEMA_VERSION",
        422,
        "The schema version is not known",
        "`schema_version` names a version of the envelope that this server does not read.",
        "Send `v1` (`1` and `1.0` are spellings of it); see `docs/reference/envelope.md`.",
    ),
    ProblemCode(
        "UNKNOWN_REQUEST_TYPE",
        422,
        "No protocol serves this request type",
        "`request_type` names no protocol that is loaded.",
        "`GET /v1/protocols` lists what is served.",
    ),
    ProblemCode(
        "INVALID_PAYLOAD",
        422,
        "The payload does not fit its step's schema",
        "The payload of a step fails the schema that the protocol declares, or `payload.steps` names a"
        " step that the protocol does not have. `errors` lists every fault.",
        "`GET /v1/protocols` shows the steps and their schemas. One step takes the payload whole; several"
        " take `payload.steps.<step_id>`, or all of them a payload without `steps`.",
    ),
    ProblemCode(
        "REFERENCE_INVALID",
        422,
        "A reference is not valid",
        "A reference is a URI, or an object whose `uri` is one.",
        "Correct the reference that `errors` points to.",
    ),
    ProblemCode(
        "REFERENCE_HAS_CREDENTIALS",
        422,
        "A reference carries credentials",
        "References are stored and passed on, so they must not hold user info, signatures or tokens.",
        "Send the plain URI, and give the services their own access.",
    ),
    ProblemCode(
        "PAYLOAD_HAS_CREDENTIALS",
        422,
        "A payload carries credentials",
        "Payloads are stored, shown and passed on as they are, so a secret in them is everybody's."
        " `errors` points to every field whose name is that of a secret (`password`, `client_secret`,"
        " `apiKey`, `auth-token`) and to every text that holds one: a URL with a user, a password or a"
        " signature, a bearer token, a private key, a connection string. The same holds for fields of"
        " the envelope that LUCIUS does not know.",
        "Give the service access of its own, and send at most the name of the secret, such as"
        " `secret_name`. If a field must carry one, or only looks like it, name it in"
        " `LUCIUS_ALLOW_PAYLOAD_SECRETS`.",
    ),
    ProblemCode(
        "REFERENCE_NOT_ALLOWED",
        422,
        "A reference is outside the policy",
        "The scheme or host of a reference is not on the allowlist.",
        "Use an allowed scheme and host, or have the allowlist changed.",
    ),
    ProblemCode(
        "REFERENCE_PROTECTED",
        422,
        "A reference leads to what LUCIUS keeps for itself",
        "A `file` reference leads into the data directory (ledger, keys) or into the workspaces of the"
        " jobs, by its name or through a link; or a reference leads into the workspaces where they lie in"
        " an object store (`LUCIUS_WORKSPACE_URL`). Nobody may name these, whatever their role.",
        "Copy the document to a place that is open to jobs (`LUCIUS_INPUT_ROOTS`), and have outputs"
        " written to one (`LUCIUS_OUTPUT_ROOTS`).",
    ),
    ProblemCode(
        "DOC_ID_REQUIRED",
        422,
        "BURST needs a document id",
        "Mode BURST spreads a tenant's work by document, so the command must name its document.",
        "Send `doc_id`, or another mode.",
    ),
    ProblemCode(
        "BURST_NOT_ALLOWED",
        403,
        "The tenant may not use BURST",
        "The configuration does not allow mode BURST for this tenant.",
        "Submit in mode DEFAULT, or have the tenant's configuration changed.",
    ),
    ProblemCode(
        "IDEMPOTENCY_KEY_REUSED",
        409,
        "The idempotency key belongs to another request",
        "The same key was used before with a different body. Nothing was created.",
        "Use a new key for a new request; repeat a request unchanged to find its job.",
    ),
    ProblemCode(
        "TENANT_SATURATED",
        429,
        "The tenant has too many live jobs",
        "The tenant's limit of jobs in flight is reached. Nothing was created, no key is taken.",
        "Repeat the request later, unchanged.",
        retry_after=True,
    ),
    ProblemCode(
        "GLOBAL_SATURATED",
        429,
        "There are too many live jobs",
        "The limit of jobs in flight is reached. Nothing was created, no key is taken.",
        "Repeat the request later, unchanged.",
        retry_after=True,
    ),
    ProblemCode(
        "LANE_SATURATED",
        429,
        "The lane has too many live jobs",
        "The limit of jobs in flight on this lane and mode is reached. Nothing was created.",
        "Repeat the request later, unchanged.",
        retry_after=True,
    ),
)


# Codes of orders to jobs, and of questions about them.

JOBS: Final = (
    ProblemCode(
        "JOB_NOT_FOUND",
        404,
        "Job not found, or you have no access to it",
        "The id names no job, or none that the caller may see: the two are not told apart.",
        "Check the id and the caller's tenants.",
    ),
    ProblemCode(
        "STEP_NOT_FOUND",
        404,
        "The job has no such step",
        "The id names no step of this job.",
        "`GET /v1/jobs/{jobId}/steps` lists its steps.",
    ),
    ProblemCode(
        "SERVICE_NOT_FOUND",
        404,
        "There is no such service",
        "No protocol that is loaded gives a step to a service of this name, and none such was ever seen.",
        "`GET /v1/services` and `lucius services` name the services.",
    ),
    ProblemCode(
        "WORKER_NOT_FOUND",
        404,
        "There is no such worker",
        "No worker of this name was seen, and no step is at work in its hands.",
        "`lucius services --workers` names the workers.",
    ),
    ProblemCode(
        "TENANT_WITHOUT_POOL",
        403,
        "This bus cannot serve a worker that is bound to tenants",
        "The key of the worker names tenants. The bus of this server cannot pick directives by tenant, so"
        " the worker would take those of other tenants from the workers that may have them.",
        "Give each of its tenants a pool for the service, `tenants.TENANT.pools.SERVICE` in the protocols,"
        " that no other tenant has, and run `lucius bus provision`. Or give the worker a key with the role"
        " `service` and without tenants.",
    ),
    ProblemCode(
        "JOB_TERMINAL",
        409,
        "The job has ended",
        "A terminal state never changes, so this job can no longer be cancelled, paused, resumed or retried.",
        "Nothing; a job that failed can be redriven.",
    ),
    ProblemCode(
        "GROUP_NOT_FOUND",
        404,
        "There is no such group of failures",
        "No failure that the caller may see has this fingerprint, or it was forgotten: 500 groups"
        " are kept.",
        "`GET /v1/failures` and `lucius failures` list the groups.",
    ),
    ProblemCode(
        "PLAN_NOT_FOUND",
        404,
        "There is no such redrive plan",
        "No plan of this id is known, or it concerns tenants that the caller may not act for.",
        "`GET /v1/redrives` and `lucius redrives` list the plans.",
    ),
    ProblemCode(
        "NOTHING_TO_REDRIVE",
        409,
        "No job matches the plan",
        "No job in the dead-letter view matches the filter of the plan, so nothing was started.",
        "Look at `lucius dlq` and `lucius failures`, and correct the filter.",
    ),
    ProblemCode(
        "PLAN_UNDER_WAY",
        409,
        "Such a plan runs already",
        "A redrive plan with the same filter runs, and a second one would go at twice its pace."
        " Nothing was started.",
        "Watch the plan that runs with `lucius redrives PLAN`; end it with `--stop` to start it with"
        " other numbers.",
    ),
    ProblemCode(
        "TOO_MANY_PLANS",
        409,
        "Too many redrive plans run",
        "Twenty redrive plans run already, in all tenants together; or three that callers bound to the"
        " tenant have started; or fifteen of such callers together. Nothing was started.",
        "Wait for one to end, or end one with `lucius redrives PLAN --stop`.",
    ),
    ProblemCode(
        "FILTER_TOO_WIDE",
        422,
        "The plan would redrive everything",
        "The filter of a redrive plan must name a group, code, step, service, request type or tenants.",
        "Name what should be redriven. To redrive all failed jobs, name the tenants, or use"
        " `lucius jobs redrive`, which counts and asks first.",
    ),
    ProblemCode(
        "JOB_PAUSED",
        409,
        "The job is paused",
        "A paused job tries nothing again until it is resumed.",
        "`lucius job resume JOB`: it goes on at once, without waiting for an old backoff.",
    ),
    ProblemCode(
        "JOB_CANCELLING",
        409,
        "The job is being cancelled",
        "Cancel beats pause: a job that is being cancelled can be neither paused nor resumed nor retried.",
        "Wait until it is CANCELLED, then redrive it if it should run after all.",
    ),
    ProblemCode(
        "NOT_REDRIVABLE",
        409,
        "The job cannot be redriven",
        "Only a job that ended FAILED_FINAL or CANCELLED can be redriven.",
        "Wait until the job has ended.",
    ),
    ProblemCode(
        "NOTHING_TO_SEND",
        409,
        "The job has no webhooks to send again",
        "Webhooks are sent when a job has ended, and only where its command named `callback_urls`.",
        "Wait until the job has ended.",
    ),
    ProblemCode(
        "ALREADY_REDRIVEN",
        409,
        "The job was redriven with another payload",
        "A job is redriven once. It was, with another payload than this one; `detail` names the new"
        " job. Nothing was created.",
        "Follow the new job. If it fails too, redrive that one, with the payload that is wanted.",
    ),
    ProblemCode(
        "NOT_IN_DLQ",
        409,
        "The job is not in the dead-letter view",
        "Only a job that ended FAILED_FINAL can be dismissed.",
        "Nothing.",
    ),
    ProblemCode(
        "CONFLICT",
        409,
        "The request does not fit the state of the job",
        "The job is in a state that does not take this request. Nothing was changed.",
        "Read the job and decide again.",
    ),
)


# Codes of what workers say.

CALLBACKS: Final = (
    ProblemCode(
        "INVALID_CALLBACK",
        422,
        "The reply is not valid",
        "Fields of the reply are missing or have the wrong type. `errors` lists every one.",
        "Correct the fields that `errors` points to.",
    ),
    ProblemCode(
        "CALLBACK_TOKEN_REQUIRED",
        401,
        "The reply carries no token",
        "Over HTTP every reply carries the `callback_token` of its directive.",
        "Send `Authorization: Bearer <callback_token>`.",
    ),
    ProblemCode(
        "CALLBACK_TOKEN_INVALID",
        401,
        "The token does not belong to this attempt",
        "A callback token is bound to tenant, job, step, attempt and lease, and opens nothing else.",
        "Send the token of the same directive as `jobId`, `stepId`, `attempt_no` and `lease_id`.",
    ),
    ProblemCode(
        "STALE_ATTEMPT",
        409,
        "Another attempt is the current one",
        "Another attempt of this step is the current one, or comes next. A reply was recorded and changed"
        " nothing; an attempt that was asked for was not recorded.",
        "Stop working on this directive; do not repeat the reply.",
    ),
    ProblemCode(
        "UNKNOWN_STEP",
        404,
        "The job has no such step",
        "The reply names a step that its job does not have.",
        "Send `stepId` as it was in the directive.",
    ),
)


# Codes of who asks, and how often.

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
        "Requests of a caller, and replies for a tenant, are limited in each second. Nothing"
        " was done.",
        "Repeat the request later, unchanged.",
        retry_after=True,
    ),
    ProblemCode(
        "TOO_MANY_WAITING",
        429,
        "Too many requests of the caller wait at once",
        "Event streams, long polls (`wait_seconds`) and pulls hold a connection while they wait. A caller"
        " may have 900 of them at once, or an address where callers are not known. Nothing was done.",
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


# Codes of what the server cannot do now.

SERVER: Final = (
    ProblemCode(
        "LEDGER_UNAVAILABLE",
        503,
        "The ledger does not answer",
        "The storage cannot be reached or did not take a write. Nothing was acknowledged; repeating"
        " the request is safe.",
        "Repeat the request, unchanged, with the same idempotency key.",
        retry_after=True,
    ),
    ProblemCode(
        "LEDGER_CORRUPT",
        503,
        "The ledger's storage is damaged",
        "The storage answered that its own pages are damaged. Nothing was acknowledged, and `/readyz`"
        " says so.",
        "Stop the server, look at the disk, keep a copy of the file, and restore a backup with"
        " `lucius ledger restore`. Then repeat the request with the same idempotency key.",
    ),
    ProblemCode(
        "LEDGER_ROW_UNREADABLE",
        500,
        "What is stored of this job cannot be read",
        "The stored document or plan of this one job is damaged. The job is left as it is and does not"
        " move; all others go on. The log names it once with the reason, `/readyz` and"
        " `lucius_unreadable_jobs` count such jobs.",
        "`lucius verify` lists all such jobs with the reason. Restore a backup that still has the job,"
        " or submit it again under another idempotency key.",
    ),
    ProblemCode(
        "BUS_UNAVAILABLE",
        503,
        "The bus does not answer",
        "The broker cannot be reached.",
        "Repeat the request later.",
        retry_after=True,
    ),
    ProblemCode(
        "ORCHESTRATION_UNAVAILABLE",
        503,
        "What moves jobs on Temporal does not answer",
        "The job runs on Temporal, and the invoker, which alone moves such jobs, cannot be reached. The"
        " job is as it was, or the order has arrived and its answer was lost; repeating it is safe.",
        "Repeat the request. If it stays so, look whether `lucius invoker` runs and whether"
        " `LUCIUS_INVOKER_URL` and `LUCIUS_INVOKER_SECRET` of this server lead to it.",
        retry_after=True,
    ),
    ProblemCode(
        "NOT_READY",
        503,
        "The server is not ready",
        "A dependency is down, or the process is starting or stopping. `detail` names it.",
        "Wait, and look at the dependency. Why it is down is in the log, and in the answer to callers with"
        " the role `operate` or `admin`.",
        retry_after=True,
    ),
    ProblemCode(
        "NOT_SUPPORTED",
        501,
        "This process does not offer that",
        "The process that answered runs without the part that would do this.",
        "Ask a process that runs it.",
    ),
    ProblemCode(
        "INTERNAL_ERROR",
        500,
        "Something is wrong with LUCIUS itself",
        "An unexpected error. Its details are in the server's log.",
        "Repeat the request with the same idempotency key; report it if it persists.",
    ),
)


CODES: Final = {
    known.code: known for known in (*READING, *ENVELOPE, *JOBS, *CALLBACKS, *CALLERS, *SERVER)
}
