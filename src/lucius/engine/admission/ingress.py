"""Ingress: from a request to the plan of a job and its claim. It creates nothing and remembers nothing."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import orjson

from lucius.core.errors import RequestError
from lucius.core.idempotency import body_hash, canonical_json, key_hash
from lucius.core.job import UNSUCCESSFUL_JOB, Job, StepState
from lucius.core.limits import MAX_PAYLOAD_BYTES, PROPERTY_CHARACTERS
from lucius.core.plan import EMPTY, Carried, Json, Mode, Plan, Sla, StepPlan
from lucius.core.record import Packed, opened, record
from lucius.core.references import NOT_ALLOWED, ReferencePolicy, reference_faults
from lucius.core.routing import route
from lucius.engine.admission.envelope import (
    Envelope,
    EnvelopePolicy,
    encoded_json,
    read_envelope,
)
from lucius.engine.admission.faults import (
    BURST_NOT_ALLOWED,
    DOC_ID_REQUIRED,
    INVALID_ENVELOPE,
    NOT_REDRIVABLE,
    UNKNOWN_REQUEST_TYPE,
    Faults,
    Warned,
    near_misses,
)
from lucius.engine.admission.rules import (
    Decided,
    ProtocolRule,
    Rules,
    check_payload,
    check_sizes,
    known_in,
    shared_by,
)
from lucius.engine.admission.secrets import PayloadSecrets
from lucius.ports.config import ConfigSource
from lucius.ports.ledger import NO_LIMITS, Claim, Limits
from lucius.system.logs import redacted

_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_.-]|^\.")
_MAX_FOLDER: Final = 120


@record
class IngressPolicy:
    """What ingress holds every request to, besides the catalog."""

    workspace_url: str = "mem://workspace"
    system: str = "lucius"
    engine: str = "outbox"
    topology: str = "shared"
    delimiter: str = ""
    references: ReferencePolicy = field(default_factory=ReferencePolicy)
    webhook_schemes: tuple[str, ...] = ("https",)
    webhook_hosts: tuple[str, ...] = ()
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    allow_payload_secrets: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    sla: Sla = field(default_factory=Sla)
    closed: Callable[[str, str], str | None] = lambda name, uri: None
    """Of `input_ref` or `output_ref`: why no service of this process could reach it, if that is known."""
    served: frozenset[str] = frozenset()
    """Services that run in this process."""


@record
class Admission:
    """A request that may become a job: what never changes about it, and its claim to be the only one."""

    plan: Plan
    claim: Claim
    warnings: tuple[Warned, ...] = ()
    """What the request may not mean as it stands. It is accepted all the same."""

    @property
    def noted(self) -> dict[str, str]:
        """What the event of its acceptance says of the warnings."""
        said = "; ".join(f"{each.pointer} {each.detail}" for each in self.warnings)
        return {"warnings": said} if said else {}


class Ingress:
    def __init__(self, config: ConfigSource, policy: IngressPolicy | None = None) -> None:
        self._config = config
        self._policy = policy = policy or IngressPolicy()
        self._fields = EnvelopePolicy(
            policy.references, policy.webhook_schemes, policy.webhook_hosts
        )
        self._small = min(PROPERTY_CHARACTERS, policy.max_payload_bytes)
        self._secrets = PayloadSecrets(policy.allow_payload_secrets)
        self._rules = Rules(config.catalog())

    def admit(
        self,
        envelope: Mapping[str, Any],
        *,
        job_id: str,
        now: datetime,
        idempotency_key: str | None = None,
    ) -> Admission:
        """Raises RequestError that names every fault."""
        rules, faults = self._current(), Faults()
        given, envelope = envelope, with_job_id(envelope, job_id)
        read = read_envelope(envelope, idempotency_key, self._fields, faults)
        self._secrets.check(read.payload, "/payload", faults)
        if read.extra:
            self._secrets.check(read.extra, "", faults)
        decided = self._decide_mode(rules, read, faults)
        protocol = self._protocol(rules, read, faults)
        if protocol is not None and read.payload is not None:
            check_payload(read.payload, protocol.steps, faults, known=protocol.step_ids)
            self._check_open(envelope, protocol.protocol.steps, faults)
            if read.size > self._small:
                self._check_sizes(envelope, read, protocol, faults)
        if faults or protocol is None:
            faults.raise_all()
        claim = _claim(given, read)
        plan = self._plan(envelope, read, protocol, decided, claim, job_id, now)
        pools = rules.tenant(read.tenant_id).pools
        plan = replace(plan, steps=_pooled(plan.steps, pools)) if pools else plan
        single = len(protocol.steps) == 1
        parts = known_in(read.payload or EMPTY, protocol.steps, protocol.known, single=single)
        return Admission(plan, claim, near_misses(read.extra, parts))

    def admit_redrive(
        self,
        old: Job,
        *,
        job_id: str,
        now: datetime,
        payload: Mapping[str, Any] | None = None,
        output_ref: Any = None,
    ) -> Admission:
        """A new job from the failed step on. Routing, steps and workspace stay those of the old one.

        `output_ref`: another place for the output, where the old one cannot be written.
        """
        carried = _carried(old)
        output = old.plan.output_ref
        if output_ref is not None:
            output = with_job_id({"output_ref": output_ref}, job_id)["output_ref"]
            self._check_output(output, old.plan.steps)
        plan = replace(
            old.plan,
            job_id=job_id,
            accepted_at=now,
            redrive_of=old.job_id,
            redrive_no=old.plan.redrive_no + 1,
            root_job_id=old.plan.root,
            carried=carried,
            idempotency_key=None,
            idempotency_hash=sha256(f"redrive:{old.job_id}".encode()).hexdigest(),
            payload=old.plan.payload if payload is None else payload,
            output_ref=output,
            moved_output=old.plan.moved_output or output != old.plan.output_ref,
        )
        warnings: tuple[Warned, ...] = ()
        if payload is not None:
            warnings = self._check_redriven(plan)
            plan = replace(plan, payload=_packed(payload))
        asked = opened(plan.payload)
        if output_ref is not None:
            asked = {"payload": asked, "output_ref": output_ref}
        body = sha256(canonical_json(asked).encode()).hexdigest()
        claim = Claim(plan.tenant_id, plan.idempotency_hash, body, keyed=True)
        return Admission(plan, claim, warnings)

    def limits(self, tenant_id: str) -> Limits:
        """How many live jobs there may be, for this tenant."""
        own = self._current().tenant(tenant_id).max_inflight
        return self._policy.limits if own is None else replace(self._policy.limits, tenant=own)

    # -- parts -------------------------------------------------------------------------------

    def _check_output(self, output_ref: Any, steps: Sequence[StepPlan]) -> None:
        faults = Faults()
        for fault in reference_faults(output_ref, "/output_ref", self._policy.references):
            faults.add(*fault)
        self._check_open({"output_ref": output_ref}, steps, faults)
        if faults:
            faults.raise_all()

    def _check_open(
        self, envelope: Mapping[str, Any], steps: Sequence[StepPlan], faults: Faults
    ) -> None:
        """A place that no service could reach is refused now. What runs elsewhere has roots of its own."""
        if faults or not self._policy.served.issuperset(step.service for step in steps):
            return
        for name in ("input_ref", "output_ref"):
            value = envelope.get(name)
            uri = value.get("uri") if isinstance(value, Mapping) else value
            reason = self._policy.closed(name, uri) if isinstance(uri, str) else None
            if reason is not None:
                faults.add(NOT_ALLOWED, f"/{name}", reason)

    def _current(self) -> Rules:
        catalog, rules = self._config.catalog(), self._rules
        if catalog is rules.catalog:
            return rules
        if not catalog.version or catalog.version != rules.catalog.version:
            self._rules = rules = Rules(catalog)
        return rules

    def _protocol(self, rules: Rules, read: Envelope, faults: Faults) -> ProtocolRule | None:
        protocol = rules.protocol(read.request_type)
        if protocol is None and read.request_type:
            reason = f"must be one of {rules.request_types()}"
            faults.add(UNKNOWN_REQUEST_TYPE, "/request_type", reason)
        return protocol

    def _decide_mode(self, rules: Rules, read: Envelope, faults: Faults) -> Decided:
        tenant = rules.tenant(read.tenant_id)
        decided = rules.decide_mode(read.mode, tenant)
        if decided[0] is Mode.BURST:
            if not rules.may_burst(tenant):
                faults.add(BURST_NOT_ALLOWED, "/mode", "this tenant may not use BURST")
            elif read.doc_id is None:
                faults.add(DOC_ID_REQUIRED, "/doc_id", "is required in mode BURST")
        return decided

    def _check_sizes(
        self, envelope: Mapping[str, Any], read: Envelope, rule: ProtocolRule, faults: Faults
    ) -> None:
        parts = {f"/{name}": envelope.get(name) for name in ("input_ref", "output_ref")}
        steps = tuple(zip(rule.protocol.steps, rule.steps, strict=True))
        payload, limit = read.payload or EMPTY, self._policy.max_payload_bytes
        check_sizes({**parts, "": read.extra}, payload, steps, limit, faults)

    def _check_redriven(self, plan: Plan) -> tuple[Warned, ...]:
        """A corrected payload must suit the steps that are still to run. Returns its near misses."""
        faults = Faults()
        if not isinstance(plan.payload, dict):
            faults.add(INVALID_ENVELOPE, "/payload", "must be an object")
            faults.raise_all()
        encoded_json({"payload": plan.payload})
        self._secrets.check(plan.payload, "/payload", faults)
        rest = [step for step in plan.steps if step.step_id not in plan.carried]
        rules = self._current()
        known = [step.step_id for step in plan.steps]
        check_payload(plan.payload, rules.steps_of(rest), faults, known=known)
        parts = {"/input_ref": plan.input_ref, "/output_ref": plan.output_ref, "": plan.extra}
        every = rules.steps_of(plan.steps)
        steps = tuple(zip(plan.steps, every, strict=True))
        check_sizes(parts, plan.payload, steps, self._policy.max_payload_bytes, faults)
        if faults:
            faults.raise_all()
        single = len(every) == 1
        return near_misses(EMPTY, known_in(plan.payload, every, shared_by(every), single=single))

    def _plan(
        self,
        envelope: Mapping[str, Any],
        read: Envelope,
        rule: ProtocolRule,
        decided: Decided,
        claim: Claim,
        job_id: str,
        now: datetime,
    ) -> Plan:
        policy, protocol = self._policy, rule.protocol
        return Plan(
            job_id=job_id,
            tenant_id=read.tenant_id,
            request_type=protocol.request_type,
            protocol_id=protocol.protocol_id,
            schema_version=read.schema_version,
            input_ref=envelope["input_ref"],
            output_ref=envelope["output_ref"],
            payload=_packed(read.payload or EMPTY),
            steps=protocol.steps,
            routing=route(
                read.tenant_id,
                read.doc_id,
                decided,
                delimiter=policy.delimiter,
                topology=policy.topology,
            ),
            accepted_at=now,
            workspace_ref=workspace_ref(policy, read.tenant_id, job_id),
            engine=policy.engine,
            doc_id=read.doc_id,
            correlation_id=_blotted(read.correlation_id),
            traceparent=read.traceparent,
            idempotency_key=_blotted(read.idempotency_key),
            idempotency_hash=claim.claim_hash,
            callback_urls=read.callback_urls,
            sla=policy.sla,
            extra=read.extra,
        )


def _pooled(steps: tuple[StepPlan, ...], pools: Mapping[str, str]) -> tuple[StepPlan, ...]:
    """With the pools that the tenant has for their services, by its configuration of this moment."""
    return tuple(replace(step, pool=pools.get(step.service)) for step in steps)


def _blotted(text: str | None) -> str | None:
    """An id that is stored and shown everywhere, without what looks like a secret in it."""
    return redacted(text) if text is not None else None


def _packed(payload: Json) -> Json:
    """As text from here on: a job may live long, and its payload is looked at once a directive."""
    return Packed(orjson.dumps(payload)) if payload else EMPTY


def _claim(envelope: Mapping[str, Any], read: Envelope) -> Claim:
    body, key = body_hash(envelope), read.idempotency_key
    if key is None:
        return Claim(read.tenant_id, body, body, keyed=False)
    return Claim(read.tenant_id, key_hash(key), body, keyed=True)


def _carried(old: Job) -> dict[str, Carried]:
    """Results that the new job keeps. Raises RequestError where there is nothing to redrive."""
    if old.state not in UNSUCCESSFUL_JOB:
        detail = f"a job is redriven once it has failed or was cancelled; this one is {old.state}"
        raise RequestError(NOT_REDRIVABLE, detail, status=409)
    pairs = zip(old.plan.steps, old.steps, strict=True)
    carried = {
        plan.step_id: old.plan.carried.get(plan.step_id) or Carried(step.result_ref, old.job_id)
        for plan, step in pairs
        if step.state is StepState.SUCCEEDED
    }
    if len(carried) == len(old.steps):
        raise RequestError(NOT_REDRIVABLE, "every step of this job has succeeded", status=409)
    return carried


JOB_ID: Final = "{jobId}"
"""In an `output_ref` this stands for the job's id, which the client cannot know beforehand."""


def with_job_id(envelope: Any, job_id: str) -> Any:
    """The envelope with the job's id in its `output_ref`. The claim is on the request as it came."""
    output = envelope.get("output_ref") if isinstance(envelope, Mapping) else None
    if isinstance(output, str) and JOB_ID in output:
        return {**envelope, "output_ref": output.replace(JOB_ID, job_id)}
    uri = output.get("uri") if isinstance(output, Mapping) else None
    if isinstance(output, Mapping) and isinstance(uri, str) and JOB_ID in uri:
        return {**envelope, "output_ref": {**output, "uri": uri.replace(JOB_ID, job_id)}}
    return envelope


# -- the workspace ---------------------------------------------------------------------------


def workspace_ref(policy: IngressPolicy, tenant_id: str, job_id: str) -> str:
    base = policy.workspace_url
    slash = "" if base.endswith("/") else "/"
    return f"{base}{slash}{policy.system}/{tenant_folder(tenant_id)}/{job_id}/"


@lru_cache(maxsize=4096)
def tenant_folder(tenant_id: str) -> str:
    """One folder name for one tenant, that no percent-decoding can turn into another path.

    Bytes outside letters, digits and `_.-` become `~xx`, and so does a dot at the start.
    """
    raw = tenant_id.encode()
    name = _UNSAFE.sub(lambda found: b"~%02x" % found[0][0], raw).decode()
    if len(name) <= _MAX_FOLDER:
        return name
    return f"{name[: _MAX_FOLDER - 33]}~{sha256(raw).hexdigest()[:32]}"
