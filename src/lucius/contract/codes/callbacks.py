"""Codes of what workers say."""

from typing import Final

from lucius.contract.codes.kinds import ProblemCode

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
