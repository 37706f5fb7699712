"""The configuration port: protocols, tenant overrides and global defaults, kept fresh."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from lucius.core.plan import Mode, StepPlan


@dataclass(frozen=True, slots=True)
class JobProtocol:
    """An ordered list of steps that serves one `request_type`."""

    protocol_id: str
    request_type: str
    steps: tuple[StepPlan, ...]
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Payload schema by step id."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class TenantConfig:
    mode: Mode | None = None
    burst_allowed: bool | None = None
    max_inflight: int | None = None
    pools: Mapping[str, str] = field(default_factory=dict)
    """By service, the workers that alone take the tenant's directives."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """One consistent reading of the configuration."""

    protocols: Mapping[str, JobProtocol]
    """By request type, arrows normalised to `->`."""
    default_mode: Mode = Mode.DEFAULT
    burst_allowed: bool = True
    tenants: Mapping[str, TenantConfig] = field(default_factory=dict)
    version: str = ""


class ConfigSource(Protocol):
    pause: timedelta
    """Between two looks for changes."""

    def catalog(self) -> Catalog:
        """The newest reading that was valid; never blocks, never fails once started."""

    async def refresh(self) -> bool:
        """Look for changes. True if a new reading is in force. A bad change is reported, not used."""

    def fault(self) -> str | None:
        """Why the newest change is not in force, if it is not."""

    async def close(self) -> None:
        """Nothing is asked of it afterwards."""
