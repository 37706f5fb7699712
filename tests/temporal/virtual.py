"""A Temporal server and its workers in virtual time, for stories that take hours or kill at named points.

The workflow is the real one, run by the library's own `WorkflowInstance`: it is given activations and
answers with commands, as a worker has it. This is the server's part only: timers, tries of activities,
signals, and workflows that outlive their workers. `test_virtual.py` holds it against a real server.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import NAMESPACE_OID, uuid5
from zlib import crc32

from temporalio import converter, workflow
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import ApplicationFailureInfo, CanceledFailureInfo, Failure
from temporalio.bridge.proto.activity_result import ActivityResolution, Cancellation, Success
from temporalio.bridge.proto.activity_result import Failure as ActivityFailure
from temporalio.bridge.proto.workflow_activation import (
    CancelWorkflow,
    FireTimer,
    InitializeWorkflow,
    QueryWorkflow,
    ResolveActivity,
    SignalWorkflow,
    WorkflowActivation,
    WorkflowActivationJob,
)
from temporalio.bridge.proto.workflow_commands import (
    ScheduleActivity,
    ScheduleLocalActivity,
    WorkflowCommand,
)
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import Priority, RetryPolicy, TypedSearchAttributes
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker._workflow_instance import WorkflowInstance, WorkflowInstanceDetails

from lucius.engine.temporal.invoker_client import Asking
from lucius.engine.temporal.metrics import TemporalInstruments
from lucius.engine.temporal.worker import Activities
from lucius.engine.temporal.workflow import JobWorkflow
from lucius.engine.temporal.workflows import KEYWORD, NAMES, TemporalPlace, TemporalWorkflows

PAYLOADS: Final = converter.default().payload_converter
BY_THE_WAY: Final = ("upsert_workflow_search_attributes", "set_patch_marker")
"""Commands that ask the server for nothing that a story would see."""


class VirtualWorker:
    """The worker of one process: it lives, and asks, as long as its process does."""

    def __init__(self, invoker: Asking) -> None:
        self._activities = {
            each.__name__: each for each in Activities(invoker, TemporalInstruments()).all
        }
        self.tasks: set[asyncio.Task[Any]] = set()

    def begin(
        self, server: "VirtualServer", name: str, body: Mapping[str, Any]
    ) -> "asyncio.Task[Any]":
        environment = ActivityEnvironment(cast(Client, server))
        environment.info = replace(environment.info, workflow_id=body["jobId"])
        asked = environment.run(self._activities[name], body)
        task = asyncio.create_task(cast(Coroutine[Any, Any, Any], asked))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


class VirtualServer:
    """What a client of a Temporal server sees, and the workflows behind it. `away`: nothing is answered."""

    namespace = "default"

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.operator_service = self
        self.executions: dict[str, Execution] = {}
        self.away = False
        self.broken: BaseException | None = None
        self._workers: list[VirtualWorker] = []
        self._turn = itertools.count()
        self._came = asyncio.Event()

    def workflows(self, now: Callable[[], datetime]) -> TemporalWorkflows:
        """The adapter as it is in production."""
        place = TemporalPlace("virtual", "default", "virtual")
        return TemporalWorkflows(cast(Client, self), place, now=now)

    # -- workers -----------------------------------------------------------------------------

    def join(self, worker: VirtualWorker) -> None:
        self._workers.append(worker)
        self._came.set()

    def leave(self, worker: VirtualWorker) -> None:
        self._workers = [each for each in self._workers if each is not worker]

    async def worker(self) -> VirtualWorker:
        """The next one in turn, once there is one."""
        while not self._workers:
            self._came.clear()
            await self._came.wait()
        return self._workers[next(self._turn) % len(self._workers)]

    async def close(self) -> None:
        for execution in self.executions.values():
            await execution.close()

    # -- as the client has it ------------------------------------------------------------------

    async def start_workflow(self, run: object, start: Any, *, id: str, **how: Any) -> None:
        self._answer()
        if id in self.executions:
            raise WorkflowAlreadyStartedError(id, "LuciusJob")
        self.executions[id] = Execution(self, id, start)

    def get_workflow_handle(self, workflow_id: str) -> "Handle":
        return Handle(self, workflow_id)

    async def list_workflows(self, query: str) -> AsyncIterator[SimpleNamespace]:
        self._answer()
        for found in [each for each in self.executions.values() if each.running]:
            yield SimpleNamespace(id=found.workflow_id)

    async def list_search_attributes(self, asked: object) -> SimpleNamespace:
        self._answer()
        return SimpleNamespace(custom_attributes=dict.fromkeys(NAMES, KEYWORD))

    def _answer(self) -> None:
        if self.away:
            raise RPCError("nobody answers", RPCStatusCode.UNAVAILABLE, b"")

    def found(self, workflow_id: str) -> "Execution":
        self._answer()
        found = self.executions.get(workflow_id)
        if found is None:
            raise RPCError("no such workflow", RPCStatusCode.NOT_FOUND, b"")
        return found


class Handle:
    def __init__(self, server: VirtualServer, workflow_id: str) -> None:
        self._server = server
        self._id = workflow_id

    async def signal(self, name: str, told: Any, **how: Any) -> None:
        execution = self._server.found(self._id)
        if not execution.running:
            raise RPCError("it has ended", RPCStatusCode.NOT_FOUND, b"")
        payloads = PAYLOADS.to_payloads([told])
        job = SignalWorkflow(signal_name=name, input=payloads, originating_event_id=1)
        execution.put(WorkflowActivationJob(signal_workflow=job))

    async def cancel(self) -> None:
        execution = self._server.found(self._id)
        execution.put(WorkflowActivationJob(cancel_workflow=CancelWorkflow()))

    async def describe(self, **how: Any) -> SimpleNamespace:
        running = self._server.found(self._id).running
        status = WorkflowExecutionStatus.RUNNING if running else WorkflowExecutionStatus.COMPLETED
        return SimpleNamespace(status=status)

    async def query(self, name: Any, **how: Any) -> Any:
        return self._server.found(self._id).query(name.__name__)

    async def terminate(self) -> None:
        await self._server.found(self._id).close()


class Execution:
    """One workflow: its past, and what it waits for. A worker that takes it over replays its past."""

    def __init__(self, server: VirtualServer, workflow_id: str, start: Any) -> None:
        self.workflow_id = workflow_id
        self.running = True
        self.result: Any = None
        self.replays = 0
        self._server = server
        self._on: VirtualWorker | None = None
        self._came = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runs = 0
        self._begin([*PAYLOADS.to_payloads([start])])
        self._spawn(self._run())

    def _begin(self, arguments: list[Payload]) -> None:
        """Anew, or as a new run of it."""
        self._runs += 1
        self._run_id = str(uuid5(NAMESPACE_OID, f"{self.workflow_id} {self._runs}"))
        self._past: list[tuple[WorkflowActivation, list[bytes]]] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._given_up: set[int] = set()
        self._instance: WorkflowInstance | None = None
        start = InitializeWorkflow(
            workflow_type="LuciusJob", workflow_id=self.workflow_id, arguments=arguments
        )
        self._inbox = [WorkflowActivationJob(initialize_workflow=start)]
        self._came.set()

    def put(self, job: WorkflowActivationJob) -> None:
        self._inbox.append(job)
        self._came.set()

    def query(self, name: str) -> Any:
        """Asked of the worker that has it."""
        if self._instance is None:
            raise RPCError("no worker has it", RPCStatusCode.DEADLINE_EXCEEDED, b"")
        asked = WorkflowActivationJob(query_workflow=QueryWorkflow(query_id="q", query_type=name))
        activation = WorkflowActivation(run_id=self._run_id, jobs=[asked])
        activation.timestamp.FromDatetime(self._server.now())
        (answer,) = activated(self._instance, activation)
        return decoded(answer.respond_to_query.succeeded.response)

    async def close(self) -> None:
        self.running = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._server.broken = task.exception()

    # -- workflow tasks ------------------------------------------------------------------------

    async def _run(self) -> None:
        while self.running:
            await self._came.wait()
            worker = await self._server.worker()
            self._came.clear()
            if self._inbox:
                self._activate(worker)

    def _activate(self, worker: VirtualWorker) -> None:
        jobs, self._inbox = self._inbox, []
        if self._instance is None or worker is not self._on:
            self._instance, self._on = self._replayed(), worker
        activation = WorkflowActivation(
            run_id=self._run_id, jobs=jobs, history_length=4 * len(self._past)
        )
        activation.timestamp.FromDatetime(self._server.now())
        commands = activated(self._instance, activation)
        self._past.append((activation, [each.SerializeToString() for each in commands]))
        for command in commands:
            self._obey(command)

    def _replayed(self) -> WorkflowInstance:
        """Not in anyone's cache: the same past must lead to the same commands."""
        instance = new_instance(self.workflow_id, self._run_id, self._server.now())
        self.replays += bool(self._past)
        for activation, commands in self._past:
            again = [each.SerializeToString() for each in activated(instance, activation)]
            assert again == commands, "the workflow is not deterministic"
        return instance

    def _obey(self, command: WorkflowCommand) -> None:
        match command.WhichOneof("variant"):
            case "schedule_activity":
                self._spawn(self._ask(command.schedule_activity))
            case "schedule_local_activity":
                local = command.schedule_local_activity
                once = local.retry_policy.maximum_attempts == 1
                self._spawn(self._ask_at_once(local) if once else self._ask(local))
            case "request_cancel_local_activity":
                self._give_up(command.request_cancel_local_activity.seq)
            case "start_timer":
                timer = command.start_timer
                seconds = timer.start_to_fire_timeout.ToTimedelta().total_seconds()
                later = asyncio.get_running_loop().call_later(seconds, self._fire, timer.seq)
                self._timers[timer.seq] = later
            case "cancel_timer":
                running = self._timers.pop(command.cancel_timer.seq, None)
                if running is not None:  # else it has fired, and a signal of the same task ends it
                    running.cancel()
            case "complete_workflow_execution":
                self.result = decoded(command.complete_workflow_execution.result)
                self.running = False
            case "fail_workflow_execution":
                details = command.fail_workflow_execution.failure.application_failure_info.details
                assert details.payloads, f"the workflow has failed: {command}"
                self.result = decoded(details.payloads[0])
                self.running = False
            case "cancel_workflow_execution":
                self.result = {"state": "CANCELLED"}
                self.running = False
            case "continue_as_new_workflow_execution":
                self._begin([*command.continue_as_new_workflow_execution.arguments])
            case other:
                assert other in BY_THE_WAY, f"the workflow has failed: {command}"

    def _fire(self, seq: int) -> None:
        del self._timers[seq]
        self.put(WorkflowActivationJob(fire_timer=FireTimer(seq=seq)))

    # -- activities ----------------------------------------------------------------------------

    async def _ask(self, asked: ScheduleActivity | ScheduleLocalActivity) -> None:
        """Tried until it is answered; a try that a dead worker has is given up when its time is over."""
        body = decoded(asked.arguments[0])
        policy = RetryPolicy.from_proto(asked.retry_policy)
        longest = asked.start_to_close_timeout.ToTimedelta().total_seconds()
        wait, most = policy.initial_interval, policy.maximum_interval or timedelta(days=1)
        while not await self._tried(asked, body, longest):
            await asyncio.sleep(wait.total_seconds())
            wait = min(wait * policy.backoff_coefficient, most)

    async def _ask_at_once(self, asked: ScheduleLocalActivity) -> None:
        """Tried once, within the workflow task. Who dies meanwhile has not answered in time."""
        body, longest = decoded(asked.arguments[0]), asked.start_to_close_timeout.ToTimedelta()
        if not await self._tried(asked, body, longest.total_seconds()):
            unanswered = ApplicationFailureInfo(type="NoAnswer")
            said = Failure(message="no answer", application_failure_info=unanswered)
            resolution = ActivityResolution(failed=ActivityFailure(failure=said))
            self._resolve(asked, resolution)

    def _give_up(self, seq: int) -> None:
        """It counts as cancelled at once, whatever becomes of it."""
        self._given_up.add(seq)
        said = Failure(message="cancelled", canceled_failure_info=CanceledFailureInfo())
        result = ActivityResolution(cancelled=Cancellation(failure=said))
        resolved = ResolveActivity(seq=seq, result=result, is_local=True)
        self.put(WorkflowActivationJob(resolve_activity=resolved))

    def _resolve(
        self, asked: ScheduleActivity | ScheduleLocalActivity, result: ActivityResolution
    ) -> None:
        is_local = isinstance(asked, ScheduleLocalActivity)
        if is_local and asked.seq in self._given_up:
            return
        resolved = ResolveActivity(seq=asked.seq, result=result, is_local=is_local)
        self.put(WorkflowActivationJob(resolve_activity=resolved))

    async def _tried(
        self, asked: ScheduleActivity | ScheduleLocalActivity, body: Any, longest: float
    ) -> bool:
        worker = await self._server.worker()
        began_at = asyncio.get_running_loop().time()
        task = worker.begin(self._server, asked.activity_type, body)
        await asyncio.wait([task], timeout=longest)
        if not task.done() or task.cancelled():
            await asyncio.sleep(began_at + longest - asyncio.get_running_loop().time())
            return False
        error = task.exception()
        if error is not None:
            assert not getattr(error, "non_retryable", False), error
            return False
        success = Success(result=PAYLOADS.to_payloads([task.result()])[0])
        self._resolve(asked, ActivityResolution(completed=success))
        return True


def decoded(payload: Payload) -> Any:
    return PAYLOADS.from_payloads([payload])[0]


def activated(instance: WorkflowInstance, activation: WorkflowActivation) -> list[WorkflowCommand]:
    """A workflow is an event loop of its own: afterwards this one runs again."""
    outer = asyncio.get_running_loop()
    try:
        completion = instance.activate(activation)
    finally:
        asyncio._set_running_loop(outer)
    assert completion.HasField("successful"), completion.failed
    return list(completion.successful.commands)


def new_instance(workflow_id: str, run_id: str, at: datetime) -> WorkflowInstance:
    info = workflow.Info(
        attempt=1,
        continued_run_id=None,
        cron_schedule=None,
        execution_timeout=None,
        first_execution_run_id=run_id,
        headers={},
        namespace="default",
        original_execution_run_id=run_id,
        parent=None,
        root=None,
        priority=Priority.default,
        raw_memo={},
        retry_policy=None,
        run_id=run_id,
        run_timeout=None,
        search_attributes={},
        start_time=at,
        workflow_start_time=at,
        task_queue="virtual",
        task_timeout=timedelta(seconds=10),
        typed_search_attributes=TypedSearchAttributes([]),  # the library changes it in place
        workflow_id=workflow_id,
        workflow_type="LuciusJob",
    )
    return UnsandboxedWorkflowRunner().create_instance(
        WorkflowInstanceDetails(
            payload_converter_factory=converter.DefaultPayloadConverter,
            failure_converter_class=converter.DefaultFailureConverter,
            interceptor_classes=(),
            defn=workflow._Definition.must_from_class(JobWorkflow),
            info=info,
            randomness_seed=crc32(run_id.encode()),
            extern_functions={"__temporal_assert_local_activity_valid": lambda name: None},
            disable_eager_activity_execution=True,
            worker_level_failure_exception_types=(),
            patch_activation_callback=None,
            last_completion_result=Payloads(),
            last_failure=None,
        )
    )
