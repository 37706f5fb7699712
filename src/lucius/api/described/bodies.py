"""Examples of request bodies, by operation, and of answers that are not JSON."""

from typing import Any, Final

from lucius.api.described.jobs import AT, INPUT, JOB_ID, LEASE_ID, OUTPUT

_BOUND: Final = {"jobId": JOB_ID, "stepId": "ocr", "attempt_no": 1, "lease_id": LEASE_ID}
_COMMAND: Final = {
    "tenant_id": "acme",
    "request_type": "OCR->EMBEDDING->SIS",
    "input_ref": {"uri": INPUT},
    "output_ref": {"uri": OUTPUT},
    "payload": {"steps": {"sis": {"prompt_set": ["When does the agreement begin?"]}}},
    "schema_version": "v1",
}
_RESULT: Final = {**_BOUND, "type": "RESULT", "status": "SUCCEEDED", "output_ref": {"uri": OUTPUT}}
_REASON: Final = {"reason": "the model is being replaced"}
REQUESTS: Final[dict[str, Any]] = {
    "orchestrate": _COMMAND,
    "orchestrate_alias": _COMMAND,
    "callback_ack": {**_BOUND, "type": "ACK", "worker_id": "worker-1", "timestamp": AT},
    "callback_result": _RESULT,
    "callback_heartbeat": {**_BOUND, "type": "HEARTBEAT"},
    "callback_release": {**_BOUND, "type": "RELEASE"},
    "pull_directives": {"max": 8, "wait_seconds": 20, "worker_id": "worker-1", "slots": 8},
    "take_replies": {"replies": [{**_RESULT, "callback_token": "k1.eyJhIjoxfQ.c2ln"}]},
    "pause_service": {"reason": "its disk is full"},
    "resume_service": {},
    "cancel": {"immediate": False, **_REASON},
    "pause": _REASON,
    "resume": _REASON,
    "retry": _REASON,
    "redrive": {"payload": {"language": "de"}, **_REASON},
    "cancel_many": {"filter": {"tenant_id": "acme", "state": ["QUEUED"]}, "dry_run": True},
    "pause_many": {"filter": {"service": "ocr", "live": True}, **_REASON},
    "resume_many": {"filter": {"request_type": "OCR"}},
    "retry_many": {"filter": {"service": ["ocr", "sis"]}, "limit": 1000},
    "redrive_many": {"filter": {"group": "45a0810b127e"}, "dry_run": True},
    "dismiss_many": {"filter": {"created_to": AT, "code": "MODEL_GONE"}},
    "start_redrive": {
        "filter": {"group": "45a0810b127e"},
        "canary": 5,
        "rate": 20,
        "stop_after": "10%",
    },
    "stop_redrive": {},
    "dismiss": {"reason": "the document was withdrawn"},
    "retry_outbox": {},
}
ALSO: Final[dict[str, tuple[str, ...]]] = {
    "get_job": ("steps",),
    "callback_heartbeat": ("lease_expires_at", "cancel_requested"),
}
"""Properties of an answer that it does not require, and that are worth showing, by operation."""
TEXTS: Final = {
    "text/event-stream": f'id: 1\nevent: submitted\ndata: {{"seq": 1, "jobId": "{JOB_ID}"}}\n\n',
    "text/plain": 'lucius_jobs_live{tenant="acme"} 12\n',
}
"""By media type."""
