"""Workflows on a Temporal server: started once a job, signalled until they have ended."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from lucius.core.effects import SignalWorkflow
from lucius.core.errors import WorkflowsUnavailableError
from lucius.core.job import Job
from lucius.core.retry import effect_backoff
from lucius.engine.temporal.invoker import snapshot
from lucius.engine.temporal.metrics import (
    CLOSED,
    DELIVERED,
    STARTED,
    THERE,
    UNREACHED,
    TemporalInstruments,
)
from lucius.engine.temporal.workflow import STATE, JobWorkflow
from lucius.ports.workflows import Fate

# Search attributes: workflows can be found by tenant, request type and state.
#
# A server refuses names that it does not know. So they are used only where all of them are registered, and
# who should register them is told; jobs run either way.

log = logging.getLogger("lucius.temporal")

TENANT: Final = SearchAttributeKey.for_keyword("LuciusTenant")
REQUEST_TYPE: Final = SearchAttributeKey.for_keyword("LuciusRequestType")
NAMES: Final = (TENANT.name, REQUEST_TYPE.name, STATE.name)
KEYWORD: Final = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
LONGEST: Final = 255
"""Characters that a keyword may have where Temporal keeps it in PostgreSQL or MySQL."""
LOOK_AGAIN: Final = 60.0
"""Seconds after which names that were missing are looked for again."""


async def missing_attributes(client: Client) -> list[str]:
    """RPCError, RuntimeError: the server did not say."""
    asked = ListSearchAttributesRequest(namespace=client.namespace)
    known = (await client.operator_service.list_search_attributes(asked)).custom_attributes
    return [name for name in NAMES if known.get(name) != KEYWORD]


async def register_attributes(client: Client) -> list[str]:
    """Those that were missing. An attribute of that name and another type is an error of the server."""
    missing = await missing_attributes(client)
    if missing:
        asked = AddSearchAttributesRequest(namespace=client.namespace)
        for name in missing:
            asked.search_attributes[name] = KEYWORD
        try:
            await client.operator_service.add_search_attributes(asked)
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:  # somebody else was faster
                raise
    return missing


class JobAttributes:
    """Whether new workflows may carry them. It asks once, and again every minute while some are missing."""

    def __init__(self, client: Client, clock: Callable[[], float] | None = None) -> None:
        self._client = client
        self._clock = clock
        self._asking = asyncio.Lock()
        self._known = False
        self._next = 0.0
        self._warned = False

    async def of(self, job: Job) -> TypedSearchAttributes:
        """Empty where the server does not know them."""
        if not await self._are_known():
            return TypedSearchAttributes.empty
        return TypedSearchAttributes(
            [
                SearchAttributePair(TENANT, job.tenant_id[:LONGEST]),
                SearchAttributePair(REQUEST_TYPE, job.plan.request_type[:LONGEST]),
                SearchAttributePair(STATE, job.state.value),
            ]
        )

    async def _are_known(self) -> bool:
        clock = self._clock or asyncio.get_running_loop().time
        async with self._asking:
            if not self._known and clock() >= self._next:
                self._known = await self._look()
                self._next = clock() + LOOK_AGAIN
        return self._known

    async def _look(self) -> bool:
        try:
            missing = await missing_attributes(self._client)
        except (RPCError, RuntimeError) as error:
            log.info("which search attributes the Temporal server has is not known: %s", error)
            return False
        if missing and not self._warned:
            self._warned = True
            log.warning(
                "the Temporal namespace %s has no search attributes %s of type Keyword: workflows"
                " cannot be found by tenant, request type and state until `lucius temporal provision`"
                " has registered them",
                self._client.namespace,
                ", ".join(missing),
            )
        return not missing


PATIENCE: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class TemporalPlace:
    """Where workflows live. `tls` without an API key is for servers that know clients otherwise.

    Certificates and the key are in PEM form; empty: the authorities of the system, and none to show.
    """

    address: str
    namespace: str
    task_queue: str
    tls: bool = False
    api_key: str = ""
    authorities: bytes = b""
    certificate: bytes = b""
    private_key: bytes = b""


def tls_of(place: TemporalPlace) -> TLSConfig | bool:
    if not place.tls:
        return False
    return TLSConfig(
        server_root_ca_cert=place.authorities or None,
        client_cert=place.certificate or None,
        client_private_key=place.private_key or None,
    )


async def connected(place: TemporalPlace) -> Client:
    """It connects when it is first used: a process starts without its Temporal server too."""
    return await Client.connect(
        place.address,
        namespace=place.namespace,
        tls=tls_of(place),
        api_key=place.api_key or None,
        lazy=True,
    )


def start_of(job: Job, now: datetime) -> dict[str, Any]:
    """What a workflow begins with."""
    return {"jobId": job.job_id, "tenant_id": job.tenant_id, "snapshot": snapshot(job, now)}


def _is_closed(error: Exception) -> bool:
    """The workflow has ended, or never was. A namespace that is missing says nothing of it."""
    missing = isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND
    return missing and "amespace" not in str(error)


class TemporalWorkflows:
    def __init__(
        self,
        client: Client,
        place: TemporalPlace,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._place = place
        self._now = now
        self._attributes = JobAttributes(client)
        self.instruments = TemporalInstruments()

    async def start(self, job: Job) -> None:
        attributes = await self._attributes.of(job)
        start = start_of(job, max(self._now(), job.updated_at))
        try:
            await self._client.start_workflow(
                JobWorkflow.run,
                {**start, "state_shown": attributes.get(STATE)},
                id=job.job_id,
                task_queue=self._place.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                static_summary=job.plan.request_type,
                search_attributes=attributes,
                rpc_timeout=PATIENCE,
            )
        except WorkflowAlreadyStartedError:
            self.instruments.starts.add(THERE)
        except (RPCError, RuntimeError) as error:
            self.instruments.starts.add(UNREACHED)
            raise self._unavailable(error) from error
        else:
            self.instruments.starts.add(STARTED)

    async def signal(self, job: Job, effect: SignalWorkflow) -> None:
        handle = self._client.get_workflow_handle(job.job_id)
        outcome = DELIVERED
        try:
            await handle.signal(effect.signal, self._told(job, effect), rpc_timeout=PATIENCE)
        except (RPCError, RuntimeError) as error:
            if not _is_closed(error):
                self.instruments.signals.add(effect.signal, UNREACHED)
                raise self._unavailable(error) from error
            outcome = CLOSED
        self.instruments.signals.add(effect.signal, outcome)
        self.instruments.signal_lag.add(self._lag(job, effect), effect.signal)

    def _lag(self, job: Job, effect: SignalWorkflow) -> float:
        """Seconds since the job has moved, with the waits between the tries before this one."""
        tries = next((o.attempts for o in job.owed if o.owed_id == effect.owed_id), 1)
        waits = (effect_backoff(n, "signal_workflow") for n in range(1, tries))
        return max(0.0, sum(waits, self._now() - job.updated_at).total_seconds())

    def _told(self, job: Job, effect: SignalWorkflow) -> dict[str, Any]:
        """What a signal carries: the fields that its specification names, and how the job stands."""
        standing = snapshot(job, max(self._now(), job.updated_at))
        about: dict[str, Any] = next(
            (s for s in standing["steps"] if s["stepId"] == effect.step_id), {}
        )
        return {"jobId": job.job_id, **about, "error": standing["error"], "snapshot": standing}

    async def running(self) -> AsyncIterator[str]:
        """Ids of the jobs whose workflows have not ended, as the server lists them."""
        name = "LuciusJob"
        query = f"WorkflowType = '{name}' AND ExecutionStatus = 'Running'"
        try:
            async for found in self._client.list_workflows(query):
                yield found.id
        except (RPCError, RuntimeError) as error:
            raise self._unavailable(error) from error

    async def fate(self, job_id: str) -> Fate:
        try:
            found = await self._client.get_workflow_handle(job_id).describe(rpc_timeout=PATIENCE)
        except RPCError as error:
            if _is_closed(error):
                return Fate.MISSING
            raise self._unavailable(error) from error
        except RuntimeError as error:
            raise self._unavailable(error) from error
        runs = found.status is WorkflowExecutionStatus.RUNNING
        return Fate.RUNNING if runs else Fate.ENDED

    async def standing(self, job_id: str) -> Mapping[str, Any] | None:
        handle = self._client.get_workflow_handle(job_id)
        try:
            told: dict[str, Any] = await handle.query(JobWorkflow.standing, rpc_timeout=PATIENCE)
        except (RPCError, RuntimeError, WorkflowQueryFailedError):
            return None
        return told

    async def check(self) -> None:
        """One cheap request. A namespace that is missing is named."""
        asked = DescribeNamespaceRequest(namespace=self._place.namespace)
        try:
            service = self._client.workflow_service
            await service.describe_namespace(asked, timeout=PATIENCE)
        except (RPCError, RuntimeError) as error:
            raise self._unavailable(error) from error

    async def provision(self) -> list[str]:
        try:
            return await register_attributes(self._client)
        except (RPCError, RuntimeError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> WorkflowsUnavailableError:
        namespace, address = self._place.namespace, self._place.address
        if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
            said = (
                f"the Temporal server at {address} has no namespace {namespace}: create it"
                f" (temporal operator namespace create -n {namespace}), or set"
                " LUCIUS_TEMPORAL_NAMESPACE"
            )
            return WorkflowsUnavailableError(said)
        why = str(error) or type(error).__name__
        return WorkflowsUnavailableError(f"the Temporal server at {address}: {why}")

    async def close(self) -> None:
        """The connection ends with the process."""
