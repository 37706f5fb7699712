"""A catalog made ready for use: schemas compiled once, for as long as the catalog is in force."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jsonschema_rs
import orjson

from lucius.core.idempotency import normal_request_type
from lucius.core.limits import (
    ENVELOPE_CHARACTERS,
    PROPERTY_CHARACTERS,
    directive_capacity,
    fits_property,
    pointer,
    utf16_length,
)
from lucius.core.plan import EMPTY, DecisionSource, Json, Mode, StepPlan
from lucius.core.routing import choose_mode
from lucius.engine.admission.faults import (
    INVALID_PAYLOAD,
    NOTHING,
    PAYLOAD_TOO_LARGE,
    Faults,
    Known,
    known_fields,
    merged,
)
from lucius.ports.config import Catalog, JobProtocol, TenantConfig

Decided = tuple[Mode, DecisionSource, str]

_NO_TENANT: Final = TenantConfig()
_MASK: Final = "the value"
"""Stands for the payload's own values in error messages."""


class PayloadRule(NamedTuple):
    """What the schema of a step type says of a payload."""

    validator: jsonschema_rs.Draft202012Validator | None
    known: Known


ANY_PAYLOAD: Final = PayloadRule(None, NOTHING)


@dataclass(frozen=True, slots=True)
class StepRule:
    step_id: str
    pointer: str
    validator: jsonschema_rs.Draft202012Validator | None
    known: Known
    """The fields that its schema names."""


@dataclass(frozen=True, slots=True)
class ProtocolRule:
    protocol: JobProtocol
    steps: tuple[StepRule, ...]
    step_ids: tuple[str, ...]
    known: Known
    """The fields of a payload that goes to every step."""


class Rules:
    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._by_step_type: dict[str, PayloadRule] = {}
        self._protocols = {
            name: self._protocol_rule(protocol) for name, protocol in catalog.protocols.items()
        }

    def protocol(self, request_type: str) -> ProtocolRule | None:
        found = self._protocols.get(request_type)
        return found or self._protocols.get(normal_request_type(request_type))

    def request_types(self) -> str:
        return ", ".join(sorted(self._protocols))

    def tenant(self, tenant_id: str) -> TenantConfig:
        return self.catalog.tenants.get(tenant_id, _NO_TENANT)

    def may_burst(self, tenant: TenantConfig) -> bool:
        own = tenant.burst_allowed
        return self.catalog.burst_allowed if own is None else own

    def decide_mode(self, requested: Mode | None, tenant: TenantConfig) -> Decided:
        """A global default of BURST does not hold for a tenant that may not use it."""
        default = self.catalog.default_mode
        if requested is tenant.mode is None and default is Mode.BURST:
            if not self.may_burst(tenant):
                reason = "the global default is BURST, which the tenant may not use"
                return Mode.DEFAULT, DecisionSource.GLOBAL_CONFIG, reason
        return choose_mode(requested, tenant.mode, default)

    def steps_of(self, steps: Sequence[StepPlan]) -> tuple[StepRule, ...]:
        """Rules for the steps of a job that is already there, by their types as they are known now."""
        return tuple(
            _rule(step.step_id, self._by_step_type.get(step.step_type, ANY_PAYLOAD))
            for step in steps
        )

    def _protocol_rule(self, protocol: JobProtocol) -> ProtocolRule:
        steps = tuple(
            _rule(step.step_id, self._payload(step.step_type, protocol.schemas.get(step.step_id)))
            for step in protocol.steps
        )
        return ProtocolRule(
            protocol, steps, tuple(step.step_id for step in steps), shared_by(steps)
        )

    def _payload(self, step_type: str, schema: Mapping[str, Any] | None) -> PayloadRule:
        """Schemas belong to step types, so each is compiled once."""
        if schema is None:
            return ANY_PAYLOAD
        found = self._by_step_type.get(step_type)
        if found is None:
            validator = jsonschema_rs.Draft202012Validator(dict(schema), mask=_MASK, offline=True)
            found = self._by_step_type[step_type] = PayloadRule(validator, known_fields(schema))
        return found


def _rule(step_id: str, payload: PayloadRule) -> StepRule:
    return StepRule(step_id, f"/payload/steps/{step_id}", *payload)


def shared_by(steps: Sequence[StepRule]) -> Known:
    """One step: what its schema names. Several: what any of them names, and `steps`."""
    return merged([step.known for step in steps], *(("steps",) if len(steps) > 1 else ()))


def known_in(
    payload: Json, steps: Sequence[StepRule], shared: Known, *, single: bool
) -> Iterator[tuple[str, Any, Known]]:
    """Each part of a payload: where it stands, what it is, and the fields that are known there."""
    by_step = None if single else payload.get("steps")
    if not isinstance(by_step, dict):
        yield "/payload", payload, shared
        return
    for step in steps:
        yield step.pointer, by_step.get(step.step_id, EMPTY), step.known


def step_payloads(
    payload: Json, steps: Sequence[StepRule], *, single: bool
) -> Iterator[tuple[StepRule, str, Any]]:
    """Each step with its payload and where that stands, as `Plan.payload_of` will give it.

    `single`: the job has one step in all, whose payload may have a field `steps` of its own.
    """
    by_step = None if single else payload.get("steps")
    for step in steps:
        if isinstance(by_step, dict):
            yield step, step.pointer, by_step.get(step.step_id, EMPTY)
        else:
            yield step, "/payload", payload


def check_payload(
    payload: Json, steps: Sequence[StepRule], faults: Faults, *, known: Sequence[str]
) -> None:
    """`known`: the ids of all steps of the job; `steps` may leave out those that are done."""
    single = len(known) == 1
    if not single and "steps" in payload:
        _check_ids(payload["steps"], known, faults)
    for step, at, value in step_payloads(payload, steps, single=single):
        if step.validator is not None and not step.validator.is_valid(value):
            faults.add_payload(step.validator, value, at)


def _check_ids(by_step: Any, known: Sequence[str], faults: Faults) -> None:
    """What is addressed to no step would reach nobody."""
    if not isinstance(by_step, dict):
        reason = "must be an object that holds the payload of each step by its id"
        faults.add(INVALID_PAYLOAD, "/payload/steps", reason)
        return
    for step_id in by_step:
        if step_id not in known:
            reason = f"names no step of this job, which has {', '.join(known)}"
            faults.add(INVALID_PAYLOAD, "/payload/steps" + pointer(step_id), reason)


# Whether a request fits every backend: the worst rows and the rendered directive of every step.

_TOO_LONG: Final = f"is larger than {PROPERTY_CHARACTERS} characters of JSON"


def check_sizes(
    parts: dict[str, Any],
    payload: Json,
    steps: Sequence[tuple[StepPlan, StepRule]],
    max_payload: int,
    faults: Faults,
) -> None:
    """`parts`: what every directive carries besides its payload, by JSON pointer."""
    encoded = {at: orjson.dumps(value) for at, value in parts.items()}
    for at, text in encoded.items():
        if not fits_property(text):
            faults.add(PAYLOAD_TOO_LARGE, at, _TOO_LONG)
    whole = orjson.dumps(payload)
    if len(whole) > max_payload:
        faults.add(PAYLOAD_TOO_LARGE, "/payload", f"is larger than {max_payload} bytes")
    shared = sum(len(text) for text in encoded.values())
    if sum(utf16_length(text) for text in (whole, *encoded.values())) > ENVELOPE_CHARACTERS:
        faults.add(PAYLOAD_TOO_LARGE, "", f"is larger than {ENVELOPE_CHARACTERS} characters")
    _check_steps(payload, steps, shared, faults)


def _check_steps(
    payload: Json, steps: Sequence[tuple[StepPlan, StepRule]], shared: int, faults: Faults
) -> None:
    stages = [plan.stage for plan, _ in steps]
    rules = [rule for _, rule in steps]
    parts = step_payloads(payload, rules, single=len(rules) == 1)
    for stage, (_, at, value) in zip(stages, parts, strict=True):
        text = orjson.dumps(value)
        if not fits_property(text):
            faults.add(PAYLOAD_TOO_LARGE, at, _TOO_LONG)
        capacity = directive_capacity(sum(1 for other in stages if other < stage))
        if shared + len(text) > capacity:
            reason = (
                f"makes a directive of more than {capacity} bytes with the references beside it"
            )
            faults.add(PAYLOAD_TOO_LARGE, at, reason)
