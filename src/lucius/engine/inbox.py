"""The inbox: all that may move a job waits here, by job, until a turn of the engine takes it.

A job that is being read or saved keeps its mail meanwhile. So decisions about one job follow one another,
in the order in which their inputs came, and no job waits for another.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from lucius.core.effects import Decision
from lucius.core.errors import LedgerUnavailableError
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.engine.admission.ingress import Admission
from lucius.ports.engine import Applied
from lucius.ports.ledger import CreateOutcome, Limits

A_TURN: Final = 16
"""Jobs that one turn takes: more would keep who only wants to read a job waiting."""
OUTAGE_PAUSE: Final = timedelta(seconds=1)
"""How long after a failure of storage or broker the same is tried again."""
TimedInput = tuple[Input, datetime | None]
"""An input, and when it came if that was before now."""


class Request:
    """Inputs for one job that came together, and who is told what became of them."""

    __slots__ = ("answered", "failed", "fresh", "inputs", "job_id", "open", "races")

    def __init__(
        self,
        job_id: str,
        inputs: Callable[[Job], Sequence[TimedInput]],
        answered: Callable[[Job | None, Sequence[Applied]], None],
        failed: Callable[[BaseException], bool],
        *,
        open: Callable[[], bool] = lambda: True,
        fresh: bool = False,
    ) -> None:
        """`inputs`: what is to be decided, given the job. It may be asked again, after a lost race.

        `answered`: they are decided, and what they changed is durable. No job: there is none.
        `failed`: nothing is known to be saved. True: try again after a pause. What it raises is reported.
        `open`: asked when a turn takes it, before the job is read. False: there is nothing to decide.
        `fresh`: another process may have moved the job, so it is read from the ledger first.
        """
        self.job_id = job_id
        self.inputs = inputs
        self.answered = answered
        self.failed = failed
        self.open = open
        self.fresh = fresh
        self.races = 0
        """How often someone else saved the job first."""


def unawaited(job_id: str, *received: Input, fresh: bool = False) -> Request:
    """Inputs that nobody waits for; with none, a second look. A failure is reported: the job stays due."""
    inputs = [(each, None) for each in received]
    return Request(job_id, lambda job: inputs, lambda job, applied: None, report, fresh=fresh)


def until_saved(job_id: str, received: Input, ended: Callable[[], None] = lambda: None) -> Request:
    """An input that nobody waits for and that is tried until the ledger has it, or cannot take it."""
    inputs = [(received, None)]

    def failed(error: BaseException) -> bool:
        if isinstance(error, LedgerUnavailableError):
            return True
        ended()
        raise error

    return Request(job_id, lambda job: inputs, lambda job, applied: ended(), failed)


def report(error: BaseException) -> bool:
    raise error


class NewJob(NamedTuple):
    """A submission that was admitted, and the job that came of it."""

    admission: Admission
    decision: Decision
    limits: Limits


class Submission:
    """Somebody waits for a new job. `plan` makes it, or raises why it is refused."""

    __slots__ = ("answer", "plan")

    def __init__(self, plan: Callable[[datetime], NewJob]) -> None:
        self.plan = plan
        self.answer: asyncio.Future[tuple[NewJob, CreateOutcome]] = (
            asyncio.get_running_loop().create_future()
        )


def answer(future: "asyncio.Future[Any]", value: Any) -> None:
    """Tell who waits, unless it has given up. An error is raised there."""
    if future.done():
        return
    if isinstance(value, asyncio.CancelledError):
        future.cancel()
    elif isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)


class Loaded(NamedTuple):
    """A job that was read for these requests."""

    job: Job
    mail: list[Request]


InboxItem = Submission | Loaded | str
"""What a turn takes: a new job, one that was read, or the id of one that has mail."""
TurnOfItems = Callable[[list[InboxItem]], None]


class Inbox:
    def __init__(self) -> None:
        self._items: deque[InboxItem] = deque()
        self._mail: dict[str, list[Request]] = {}
        """By job that waits for a turn, or that is being read or saved."""
        self._turn: TurnOfItems | None = None
        self._awake = False

    def read_by(self, turn: TurnOfItems) -> None:
        """The one reader. It is given what came, the oldest first, as long as something is left."""
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

    def put(self, item: InboxItem) -> None:
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
        items = self._items
        self._turn([items.popleft() for _ in range(min(A_TURN, len(items)))])
        if items:
            self.wake()

    # -- the reader --------------------------------------------------------------------------

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
