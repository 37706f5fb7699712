"""Directives for one service: handed out by the gateway of a certificate, and answered by a real process."""

from collections.abc import Callable
from typing import Any, Final

from lucius.certificate.exam import RESULT, Exam
from lucius.certificate.samples import Sample
from lucius.certificate.trial import Trial
from lucius.load.tally import SUCCEEDED, JobEnd

PATIENCE: Final = 600.0
DIRECTIVE_FAILURES: Final = ("missing", "poison", "duplicate")
"""What a service alone can be asked for: nobody cancels a job where there is none."""


class ServiceTarget:
    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._kinds: dict[str, Callable[[str], Exam]] = {
            "missing": lambda tenant: self._hand(tenant, input_ref={"uri": self._nowhere()}),
            "poison": lambda tenant: self._hand(tenant, self._trial.poison),
            "duplicate": self._twice,
        }

    async def run(self, tenant: str, kind: str) -> JobEnd:
        exam = self._kinds.get(kind, self._hand)(tenant)
        if not await exam.until(lambda: bool(exam.of(RESULT)), PATIENCE):
            return JobEnd("NO_RESULT")
        result = exam.of(RESULT)[0]
        if result.status == SUCCEEDED:
            return JobEnd(SUCCEEDED)
        final = result.status == "FAILED_FINAL"
        return JobEnd(result.code or result.status, final and kind in ("missing", "poison"))

    def _hand(self, tenant: str, sample: Sample | None = None, **changes: Any) -> Exam:
        return self._trial.hand(sample, tenant_id=tenant, **changes)

    def _twice(self, tenant: str) -> Exam:
        exam = self._hand(tenant)
        self._trial.gateway.hand(exam)
        return exam

    def _nowhere(self) -> str:
        return (self._trial.folders.input / "nothing-is-here").as_uri()
