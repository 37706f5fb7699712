"""FM_014: the configuration changes between two attempts of a step."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from lucius.core.effects import PublishDirective
from lucius.core.inputs import PublishConfirmed, PublishRefused
from lucius.core.job import Job, JobState
from lucius.core.plan import Mode, Plan, Routing
from lucius.core.routing import lane_of, route
from lucius.engine.admission.ingress import IngressPolicy
from lucius.engine.dispatcher import Dispatcher
from lucius.ports.config import Catalog
from tests.faults.sabotage import together
from tests.faults.services import Puppet
from tests.faults.stage import PACKAGED, Orchestrator, Stage, staged

TENANT, DOC = "tenant_a", "doc-1"
OLD = IngressPolicy()
NEW = IngressPolicy(delimiter="|", topology="isolated")
assert lane_of(f"{TENANT}{DOC}") != lane_of(TENANT), "the two configurations differ in the lane"


class Changed:
    """The same request type is served by other steps now, and bursts are no longer allowed."""

    def catalog(self) -> Catalog:
        before = PACKAGED.catalog()
        protocols = {**before.protocols, "OCR->EMBEDDING": before.protocols["SIS"]}
        return replace(before, protocols=protocols, burst_allowed=False, version="changed")

    async def refresh(self) -> bool:
        return False

    def fault(self) -> str | None:
        return None

    async def close(self) -> None:
        """It holds nothing."""


def no_pinned_routing() -> Any:
    """The topic is computed from the configuration in force when a directive is published."""
    batched, single = Dispatcher._publish, Dispatcher.publish

    def routing_now(plan: Plan) -> Routing:
        decided = (plan.routing.resolved_mode, plan.routing.decision_source, "")
        return route(
            plan.tenant_id, plan.doc_id, decided, delimiter=NEW.delimiter, topology=NEW.topology
        )

    async def routed(
        self: Dispatcher, topic: str, batch: list[tuple[Job, PublishDirective]]
    ) -> None:
        await batched(self, routing_now(batch[0][0].plan).topic, batch)

    async def one_routed(
        self: Dispatcher, job: Job, effect: PublishDirective
    ) -> PublishConfirmed | PublishRefused:
        plan = replace(job.plan, routing=routing_now(job.plan))
        return await single(self, replace(job, plan=plan), effect)

    return together(
        patch.object(Dispatcher, "_publish", routed),
        patch.object(Dispatcher, "publish", one_routed),
    )


async def first_attempt(stage: Stage) -> tuple[Puppet, Mapping[str, Any]]:
    """The first attempt is taken, and falls silent; LUCIUS goes down."""
    lucius = await stage.orchestrator(policy=OLD)
    puppet = await stage.puppet()
    await lucius.submit("OCR->EMBEDDING", mode="BURST", doc_id=DOC, tenant_id=TENANT)
    directive = await puppet.take()
    await puppet.ack(directive)
    await lucius.kill()
    return puppet, directive


async def restarted(stage: Stage) -> Orchestrator:
    return await stage.orchestrator(policy=NEW, config=Changed())


@staged
async def test_fm_014_reproduce_without_pinned_routing_the_second_attempt_goes_elsewhere(
    stage: Stage,
) -> None:
    puppet, first = await first_attempt(stage)
    with no_pinned_routing():
        await restarted(stage)
        await puppet.take()
    old, new = stage.bus.topics(first["jobId"])
    assert old != new


@staged
async def test_fm_014_prevent_every_attempt_uses_the_routing_of_the_first(stage: Stage) -> None:
    puppet, first = await first_attempt(stage)
    await restarted(stage)
    second = await puppet.take()
    pinned = ("lane", "mode", "routing_key_used", "reply_topic")
    assert second["attempt_no"] == 2
    assert [second[name] for name in pinned] == [first[name] for name in pinned]
    assert len(set(stage.bus.topics(first["jobId"]))) == 1


@staged
async def test_fm_014_recover_the_job_ends_by_the_protocol_it_started_with(stage: Stage) -> None:
    ocr, first = await first_attempt(stage)
    lucius = await restarted(stage)
    embedding = await stage.puppet("embedding")
    await ocr.succeed(await ocr.take())
    await embedding.succeed(await embedding.take())
    job = await stage.finished(first["jobId"])
    assert job.state is JobState.SUCCEEDED
    assert [step.step_id for step in job.plan.steps] == ["ocr", "embedding"]
    assert job.plan.routing.resolved_mode is Mode.BURST
    payload = {"prompt_set": ["who?"]}
    later = await stage.job(await lucius.submit("OCR->EMBEDDING", tenant_id="t", payload=payload))
    assert [step.step_id for step in later.plan.steps] == ["sis"], "new jobs follow the new one"
    assert later.plan.routing.topic.startswith("global-default-p")
