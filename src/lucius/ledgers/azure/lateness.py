"""Jobs whose copies are behind, as far as this process knows, and when each of them is to be copied."""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from lucius.core.record import record
from lucius.ledgers.azure.copies import Copy

LAG: Final = timedelta(seconds=30)
AT_ONCE: Final = 256
"""Jobs that are copied together."""
CROWD: Final = 1_000
"""Jobs that wait. The oldest of more than these are copied before their time."""
MOST: Final = 2_000
"""Where nobody copies, as in a process that owns no lane, older ones are forgotten: their owner has them."""


@record
class Behind:
    since: datetime
    copy: Copy | None
    """What this process has saved last; none: the job is read when its time comes."""

    @property
    def ended(self) -> bool:
        return self.copy is not None and self.copy.job.terminal


class Late:
    def __init__(self, now: Callable[[], datetime], lag: timedelta) -> None:
        self._now = now
        self.lag: Final = lag
        self._jobs: OrderedDict[str, Behind] = OrderedDict()

    def note(self, job_id: str, copy: Copy | None) -> None:
        """Its time runs from the first save that was not copied. What is known about it stays."""
        known = self._jobs.get(job_id)
        since = known.since if known is not None else self._now()
        self._jobs[job_id] = Behind(since, copy or (known.copy if known is not None else None))
        if len(self._jobs) > MOST:
            self._jobs.popitem(last=False)

    def copied(self, copy: Copy) -> None:
        """As far as that save."""
        known = self._jobs.get(copy.job.job_id)
        if known is not None and known.copy is not None:
            if known.copy.job.version <= copy.job.version:
                del self._jobs[copy.job.job_id]

    def taken(self, *, all_own: bool) -> list[tuple[str, Copy | None]]:
        """Those whose time has come; or all that were saved here. They are waiting no more."""
        if all_own:
            found = [each for each in self._jobs.items() if each[1].copy is not None]
        else:
            found = self._ripe()[:AT_ONCE]
        for job_id, _ in found:
            del self._jobs[job_id]
        return [(job_id, behind.copy) for job_id, behind in found]

    def _ripe(self) -> list[tuple[str, Behind]]:
        """With the first whose time has come go all that have ended: they share its requests."""
        before, crowd = self._now() - self.lag, len(self._jobs) - CROWD
        jobs = list(self._jobs.items())
        if not any(no < crowd or behind.since <= before for no, (_, behind) in enumerate(jobs)):
            return []
        return [
            (job_id, behind)
            for no, (job_id, behind) in enumerate(jobs)
            if no < crowd or behind.since <= before or behind.ended
        ]
