"""A broken service for every check, and words of what the check must say about it."""

from typing import Final

from tests.certificate import breaking as b
from tests.certificate import saying as s
from tests.certificate.saying import said
from tests.certificate.worker import Defect

DEFECTS: Final[dict[str, tuple[str, Defect]]] = {
    # -- taking a directive
    "ack-in-time": ("no ACK came", said(s.Unsaid, "ACK")),
    "ack-comes-first": ("in the order RESULT", said(s.AckLast)),
    "ack-sent-again": ("no ACK number 3", said(s.TakesSilenceForYes, "ACK")),
    "no-work-without-ack": ("though no ACK was ever taken", said(s.TakesSilenceForYes, "ACK")),
    "refused-ack-starts-nothing": ("its ACK was refused", said(s.TakesNoForYes, "ACK")),
    "only-into-free-slots": ("no ACK came", Defect(bus=b.Greedy, slots=1)),
    # -- what replies look like
    "replies-name-their-attempt": ("attempt_no '1'", said(s.Altered, attempt_no="1")),
    "replies-carry-their-token": ("carried no token", said(s.Altered, callback_token="k1.x")),
    "replies-can-be-read": ("/status", said(s.Altered, "RESULT", status="DONE")),
    "correlation-id-echoed": ("correlation_id None", said(s.Altered, correlation_id=None)),
    "trace-continued": ("not of the trace", said(s.Altered, traceparent=None)),
    "tenant-kept": ("tenant 'other'", said(s.Altered, tenant_id="other")),
    "timestamps-are-instants": ("'yesterday'", said(s.Altered, timestamp="yesterday")),
    "result-is-small": ("output_ref has", said(s.Altered, "RESULT", output_ref="x" * 3000)),
    "no-secrets-in-replies": ("contains the callback_token", said(s.TellsItsToken)),
    # -- results
    "work-succeeds": ("saw RESULT FAILED_FINAL NEVER", Defect(b.Failing)),
    "one-result": ("2 RESULTs came", said(s.Twice, "RESULT")),
    "result-sent-again": ("no RESULT number 3", said(s.TakesSilenceForYes, "RESULT")),
    "repeated-result-is-the-same": ("first RESULT SUCCEEDED", said(s.ChangesItsMind)),
    "stale-result-is-dropped": ("times, though", said(s.TakesNoForSilence, "RESULT")),
    "unknown-fields-tolerated": ("INVALID_PAYLOAD", Defect(b.Strict)),
    "optional-fields-tolerated": ("KeyError", Defect(b.NeedsOptional)),
    "jobs-do-not-mix": ("lies with another job", said(s.OneForAll)),
    # -- effects and outputs
    "output-is-there": ("there is no ", said(s.LosesOutput)),
    "artefact-layout": ("is not the step's folder", Defect(b.Scattering)),
    "output-ref-honoured": ("there is no ", Defect(bus=b.rewriting(final_step=False))),
    "foreign-output-kept": ("was replaced", Defect(bus=b.rewriting(overwrite=True))),
    "no-effect-before-the-end": ("while the step still runs", Defect(b.Early, samples=b.SLOW)),
    "failure-leaves-nothing": ("though the step failed", Defect(b.Early)),
    "duplicate-starts-nothing": ("RESULTs that differ", b.CARELESS),
    "duplicate-after-the-end": ("applied again by a duplicate", b.CARELESS),
    "effect-once-over-attempts": ("applied again by the second attempt", b.CARELESS),
    "effect-once-over-redrives": ("two outputs that differ", b.CARELESS),
    # -- leases
    "heartbeats-while-working": ("no HEARTBEAT came", said(s.Unsaid, "HEARTBEAT")),
    "stale-lease-commits-nothing": ("lease had been replaced", s.HEEDLESS),
    "expired-lease-commits-nothing": (
        "after the lease had run out",
        said(s.TakesSilenceForYes, "HEARTBEAT"),
    ),
    "cancel-is-answered": ("neither RESULT nor RELEASE", said(s.VanishesAtCancel)),
    "cancelled-work-is-not-retried": ("saw RESULT FAILED_RETRY", said(s.RetriesCancelled)),
    # -- failures
    "poison-is-final": ("saw RESULT FAILED_RETRY UNEXPECTED_ERROR", Defect(b.Unchecked)),
    "failures-have-codes": ("saw code ''", said(s.Altered, "RESULT", error=None)),
    "missing-input-is-final": ("saw RESULT FAILED_RETRY", Defect(b.Hopeful)),
    "trouble-is-retryable": ("saw RESULT FAILED_FINAL", said(s.GivesUp)),
    "goes-on-after-a-failure": ("saw RESULT FAILED_FINAL SULKING", Defect(b.Sulking)),
    "not-a-directive-is-survived": ("was reported as SUCCEEDED", Defect(bus=b.Mending)),
    "foreign-step-type-is-refused": (
        "the step type is another service's",
        Defect(bus=b.rewriting(step_type="SHOUT")),
    ),
    # -- the process
    "outage-is-survived": ("did not ask again", Defect(bus=b.Offended)),
    "crash-is-made-good": ("no RESULT came", Defect(records=b.Locks)),
    "drain-gives-leases-back": ("without RELEASE", Defect(terminate=b.dies)),
    "drain-takes-no-more": ("pulled after SIGTERM", Defect(terminate=lambda it: it.drain(5))),
    "drain-ends-in-order": ("still ran 15 s after", Defect(terminate=lambda it: None)),
    "idle-stop-is-quick": ("still ran 15 s after", Defect(terminate=lambda it: None)),
}
