"""The inbox: all that may move a job waits here, by job, until a turn of the engine takes it.

A job that is being read or saved keeps its mail meanwhile. So decisions about one job follow one another,
in the order in which their inputs came, and no job waits for another.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from lucius.admission.ingress import Admission
from lucius.core.effects import Decision
from lucius.core.errors import LedgerUnavailableError
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.ports.engine import Applied
from lucius.ports.ledger import CreateOutcome, Limits

A_TURN: Final = 16
"""Jobs that one turn takes: more would keep who only wants to read a job waiting."""
OUTAGE_PAUSE: Final = timedelta(seconds=1)
"""How long after a failure of storage or broker the same is tried again."""
Heard = tuple[Input, datetime | None]
"""An input, and when it came if that was before now."""


class Request:
    """Inputs for one job that came together, and who is told what became of them.

    `fresh`: another process may have moved the job, so it is read from the ledger first.
    """

    __slots__ = ("fresh", "job_id", "races")

    def __init__(self, job_id: str, *, fresh: bool = False) -> None:
        self.job_id = job_id
        self.fresh = fresh
        self.races = 0
        """How often someone else saved the job first."""

    def open(self) -> bool:
        """Called when a turn takes it, before the job is read. False: there is nothing to decide."""
        return True

    def inputs(self, job: Job) -> Sequence[Heard]:
        """What is to be decided, now that the job is known. It may be asked again, after a lost race."""
        raise NotImplementedError

    def answered(self, job: Job | None, applied: Sequence[Applied]) -> None:
        """The inputs are decided, and what they changed is durable. No job: there is none."""

    def failed(self, error: BaseException) -> bool:
        """Nothing of it is known to be saved. True: try again after a pause. What is raised is reported."""
        raise error


class Told(Request):
    """An input that nobody waits for, or a second look. `keeps`: it is tried until the ledger has it."""

    __slots__ = ("_keeps", "_received")

    def __init__(
        self, job_id: str, *received: Input, keeps: bool = False, fresh: bool = False
    ) -> None:
        super().__init__(job_id, fresh=fresh)
        self._received = [(each, None) for each in received]
        self._keeps = keeps

    def inputs(self, job: Job) -> Sequence[Heard]:
        return self._received

    def failed(self, error: BaseException) -> bool:
        if self._keeps and isinstance(error, LedgerUnavailableError):
            return True
        raise error


class Asked(Request):
    """Somebody waits for the answer. Who has given up waiting is not served."""

    __slots__ = ("_given", "answer")

    def __init__(
        self, job_id: str, given: Callable[[Job], Sequence[Heard]], *, fresh: bool = False
    ) -> None:
        super().__init__(job_id, fresh=fresh)
        self._given = given
        self.answer: asyncio.Future[tuple[Job | None, Sequence[Applied]]] = (
            asyncio.get_running_loop().create_future()
        )

    def open(self) -> bool:
        return not self.answer.done()

    def inputs(self, job: Job) -> Sequence[Heard]:
        return self._given(job)

    def answered(self, job: Job | None, applied: Sequence[Applied]) -> None:
        if not self.answer.done():
            self.answer.set_result((job, applied))

    def failed(self, error: BaseException) -> bool:
        _fail(self.answer, error)
        return False


class NewJob(NamedTuple):
    """A submission that was admitted, and the job that came of it."""

    admission: Admission
    decision: Decision
    limits: Limits


class Submission:
    """Somebody waits for a new job. `plan` makes it, or raises why it is refused."""

    __slots__ = ("_new", "_plan", "answer")

    def __init__(self, plan: Callable[[datetime], NewJob]) -> None:
        self._plan = plan
        self._new: NewJob | None = None
        self.answer: asyncio.Future[tuple[NewJob, CreateOutcome]] = (
            asyncio.get_running_loop().create_future()
        )

    def planned(self, now: datetime) -> NewJob:
        self._new = self._plan(now)
        return self._new

    def settled(self, saved: Decision, outcome: Any) -> None:
        """`saved`: the job as the ledger was given it."""
        if isinstance(outcome, BaseException):
            self.failed(outcome)
        elif self._new is not None and not self.answer.done():
            self.answer.set_result((self._new._replace(decision=saved), outcome))

    def failed(self, error: BaseException) -> None:
        _fail(self.answer, error)


class Loaded(NamedTuple):
    """A job that was read for these requests."""

    job: Job
    mail: list[Request]


Item = Submission | Loaded | str
"""What a turn takes: a new job, one that was read, or the id of one that has mail."""


class Inbox:
    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._mail: dict[str, list[Request]] = {}
        """By job that waits for a turn, or that is being read or saved."""
        self._turn: Callable[[], None] | None = None
        self._awake = False

    def read_by(self, turn: Callable[[], None]) -> None:
        """The one reader. It is called soon after something came, and again while something is left."""
        assert self._turn is None, "an inbox has one reader"
        self._turn = turn

    # -- who writes --------------------------------------------------------------------------

    def post(self, request: Request) -> None:
        mail = self._mail.get(request.job_id)
        if mail is None:
            self._mail[request.job_id] = [request]
            self.put(request.job_id)
        else:
            mail.append(request)

    def post_later(self, request: Request) -> None:
        pause = OUTAGE_PAUSE.total_seconds()
        asyncio.get_running_loop().call_later(pause, self.post, request)

    def put(self, item: Item) -> None:
        self._items.append(item)
        self.wake()

    def wake(self) -> None:
        """Have a turn follow."""
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._wakes)

    def _wakes(self) -> None:
        self._awake = False
        assert self._turn is not None, "an inbox without a reader"
        self._turn()
        if self._items:
            self.wake()

    # -- the reader --------------------------------------------------------------------------

    def take(self) -> list[Item]:
        """What one turn takes, the oldest first."""
        return [self._items.popleft() for _ in range(min(A_TURN, len(self._items)))]

    def mail_of(self, job_id: str) -> list[Request]:
        """Take what there is for the job. What comes from now on waits for `free`."""
        mail = self._mail[job_id]
        self._mail[job_id] = mail[A_TURN:]
        return mail[:A_TURN]

    def free(self, job_id: str) -> None:
        """The job is neither read nor saved any more. If it has mail, a turn takes that."""
        if self._mail[job_id]:
            self.put(job_id)
        else:
            del self._mail[job_id]


def _fail(answer: "asyncio.Future[Any]", error: BaseException) -> None:
    if answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        answer.cancel()
    else:
        answer.set_exception(error)
