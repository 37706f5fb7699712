"""Codes of what the server cannot do now."""

from typing import Final

from lucius.contract.codes.kinds import ProblemCode

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
