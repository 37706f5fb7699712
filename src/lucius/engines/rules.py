"""A catalog made ready for use: schemas compiled once, for as long as the catalog is in force."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jsonschema_rs

from lucius.core.idempotency import normal_request_type
from lucius.core.plan import EMPTY, DecisionSource, Json, Mode, StepPlan
from lucius.core.routing import choose_mode
from lucius.engines.faults import Faults
from lucius.ports.config import Catalog, JobProtocol, TenantConfig

Decided = tuple[Mode, DecisionSource, str]

_NO_TENANT: Final = TenantConfig()
_MASK: Final = "the value"
"""Stands for the payload's own values in error messages."""


@dataclass(frozen=True, slots=True)
class StepRule:
    step_id: str
    pointer: str
    validator: jsonschema_rs.Draft202012Validator | None


@dataclass(frozen=True, slots=True)
class ProtocolRule:
    protocol: JobProtocol
    steps: tuple[StepRule, ...]


class Rules:
    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._by_step_type: dict[str, jsonschema_rs.Draft202012Validator] = {}
        self._protocols = {
            name: ProtocolRule(protocol, self._compiled(protocol))
            for name, protocol in catalog.protocols.items()
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
        return tuple(_rule(step.step_id, self._by_step_type.get(step.step_type)) for step in steps)

    def _compiled(self, protocol: JobProtocol) -> tuple[StepRule, ...]:
        return tuple(
            _rule(step.step_id, self._validator(step.step_type, protocol.schemas.get(step.step_id)))
            for step in protocol.steps
        )

    def _validator(
        self, step_type: str, schema: Mapping[str, Any] | None
    ) -> jsonschema_rs.Draft202012Validator | None:
        """Schemas belong to step types, so each is compiled once."""
        if schema is None:
            return None
        found = self._by_step_type.get(step_type)
        if found is None:
            found = jsonschema_rs.Draft202012Validator(dict(schema), mask=_MASK, offline=True)
            self._by_step_type[step_type] = found
        return found


def _rule(step_id: str, validator: jsonschema_rs.Draft202012Validator | None) -> StepRule:
    return StepRule(step_id, f"/payload/steps/{step_id}", validator)


def step_payloads(payload: Json, steps: Sequence[StepRule]) -> Iterator[tuple[StepRule, str, Any]]:
    """Each step with its payload and where that stands, as `Plan.payload_of` will give it."""
    by_step = payload.get("steps")
    for step in steps:
        if isinstance(by_step, dict):
            yield step, step.pointer, by_step.get(step.step_id, EMPTY)
        else:
            yield step, "/payload", payload


def check_payload(payload: Json, steps: Sequence[StepRule], faults: Faults) -> None:
    for step, at, value in step_payloads(payload, steps):
        if step.validator is not None and not step.validator.is_valid(value):
            faults.add_payload(step.validator, value, at)
