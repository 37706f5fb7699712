"""What the engine tells besides its decisions: outcomes, jobs taken up, and incidents."""

import logging
from collections.abc import Collection, Sequence
from enum import StrEnum

from lucius.core.effects import Outcome
from lucius.core.inputs import Input
from lucius.core.job import Job


class Incident(StrEnum):
    """Something went wrong that no job records."""

    OUTAGE = "outage"
    """A dependency stopped to answer; the cause names it."""
    REPLY_SET_ASIDE = "reply_set_aside"
    TASK_FAILED = "task_failed"
    """A background task ended by an error; the cause says which, the log why."""
    STUCK = "stuck"
    """Jobs are due and ticks do not move them."""
    STALLED = "stalled"
    """The process stood still, or its clock jumped ahead; the cause says which."""
    NUDGE_LOST = "nudge_lost"
    """The owner of a lane could not be told of a job that was moved here."""
    NOTICE_LOST = "notice_lost"
    """A worker could not be told that its job is being cancelled; its next heartbeat is answered."""
    WORKFLOW_UNREACHED = "workflow_unreached"
    """A workflow could not be started or signalled now; the cause says which. It is tried again."""
    UNCLAIMED = "unclaimed"
    """A directive that nobody takes; the cause names its service."""


class Observer:
    """Hears of everything and does nothing. One that does something overrides what it needs."""

    def applied(self, received: Input, outcome: Outcome) -> None:
        """An input was answered, whether or not anything was saved for it."""

    def took_up(self, job: Job) -> None:
        """An owned job as the ledger has it: left by an earlier process, or moved by another one."""

    def forgot(self, lanes: Collection[int]) -> None:
        """Lanes come or go: nothing that is known of their jobs holds."""

    def incident(self, incident: Incident, cause: str) -> None: ...


class Observers(Observer):
    """Tells several."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        self._applied = tuple(each.applied for each in observers)

    def applied(self, received: Input, outcome: Outcome) -> None:
        for applied in self._applied:
            applied(received, outcome)

    def took_up(self, job: Job) -> None:
        for each in self._observers:
            each.took_up(job)

    def forgot(self, lanes: Collection[int]) -> None:
        for each in self._observers:
            each.forgot(lanes)

    def incident(self, incident: Incident, cause: str) -> None:
        for each in self._observers:
            each.incident(incident, cause)


class Outage:
    """Says once that a dependency is down and once that it is back."""

    def __init__(self, dependency: str, what: str, log: logging.Logger) -> None:
        self._dependency = dependency
        self._what = what
        self._log = log
        self.on = False
        self.why = ""
        """What was said when it began."""

    def began(self, error: BaseException, observer: Observer) -> None:
        if not self.on:
            self.on = True
            observer.incident(Incident.OUTAGE, self._dependency)
            self.why = str(error) or type(error).__name__
            self._log.warning("outage of the %s: %s: %s", self._dependency, self._what, self.why)

    def ended(self) -> None:
        if self.on:
            self.on = False
            self._log.info("the outage of the %s is over", self._dependency)
