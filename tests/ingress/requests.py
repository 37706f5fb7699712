"""Requests for the ingress tests: one that is valid, and what a test changes about it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lucius.adapters.configs.files import FileConfig
from lucius.core.errors import RequestError
from lucius.core.plan import Mode, StepPlan
from lucius.engine.admission.ingress import Admission, Ingress, IngressPolicy
from lucius.ports.config import Catalog, JobProtocol, TenantConfig

NOW = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
STEPS: dict[str, dict[str, Any]] = {
    "ocr": {"language": "en"},
    "embedding": {"chunk_size": 512},
    "sis": {"prompt_set": ["who signed?"]},
}


class FixedConfig:
    """A configuration source that a test changes by assignment."""

    pause = timedelta(days=1)

    def __init__(self, catalog: Catalog) -> None:
        self.current = catalog

    def catalog(self) -> Catalog:
        return self.current

    async def refresh(self) -> bool:
        return False

    def fault(self) -> str | None:
        return None

    async def close(self) -> None:
        """It holds nothing."""


PACKAGED = FileConfig()


def catalog(**changes: Any) -> Catalog:
    given: dict[str, Any] = {"protocols": PACKAGED.catalog().protocols, **changes}
    return Catalog(**given)


def bursting(**tenants: TenantConfig) -> Catalog:
    return catalog(default_mode=Mode.BURST, tenants=tenants)


def wide(schema: Mapping[str, Any], count: int) -> Catalog:
    """A protocol of that many steps, one after another, with one schema for all."""
    steps = tuple(StepPlan(f"s{index}", "WIDE", "wide", index) for index in range(count))
    protocol = JobProtocol("wide", "WIDE", steps, {step.step_id: schema for step in steps})
    return Catalog({"WIDE": protocol})


def request(**changes: Any) -> dict[str, Any]:
    """A valid three-step request. A field that is given as `...` is left out."""
    fields = {
        "tenant_id": "tenant_a",
        "request_type": "OCR->EMBEDDING->SIS",
        "input_ref": {"uri": "s3://bucket/in/doc-1.pdf"},
        "output_ref": {"uri": "s3://bucket/out/doc-1.json"},
        "payload": {"steps": STEPS},
        "schema_version": "v1",
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not ...}


def admit(
    envelope: Any = None,
    *,
    config: Catalog | None = None,
    policy: IngressPolicy | None = None,
    key: str | None = None,
) -> Admission:
    ingress = Ingress(FixedConfig(config) if config is not None else PACKAGED, policy)
    given = request() if envelope is None else envelope
    return ingress.admit(given, job_id="job_1", now=NOW, idempotency_key=key)


def refused(envelope: Any, **options: Any) -> RequestError:
    with pytest.raises(RequestError) as raised:
        admit(envelope, **options)
    return raised.value
