"""Codes of commands that are not taken."""

from typing import Final

from lucius.contract.codes.kinds import ProblemCode

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
