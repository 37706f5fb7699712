"""The settings as one object, and what the parts of LUCIUS take from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, NamedTuple

from lucius.admission.ingress import IngressPolicy
from lucius.configs.files import PACKAGED as PACKAGED_PROTOCOLS
from lucius.core.plan import RetryPolicy, Sla
from lucius.core.references import ReferencePolicy
from lucius.ports.ledger import Limits
from lucius.settings.behaviour import General, LimitsSection, RetriesAndTime, Security
from lucius.settings.connections import (
    PACKAGED,
    Answers,
    BusAndRouting,
    Configuration,
    Storage,
    Temporal,
)
from lucius.settings.kinds import MASK, NONE, Declared, show

SECTIONS: Final = (
    General,
    Configuration,
    Storage,
    BusAndRouting,
    RetriesAndTime,
    LimitsSection,
    Security,
    Temporal,
    Answers,
)


class Line(NamedTuple):
    """One setting as it is in force, fit to be printed."""

    name: str
    value: str
    source: str
    about: str


def declared(section: type) -> dict[str, Declared]:
    """The rows of one section, by field name."""
    return {each.name: each.metadata["declared"] for each in fields(section) if each.metadata}


ROWS: Final = {name: row for section in SECTIONS for name, row in declared(section).items()}


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings(
    General,
    Configuration,
    Storage,
    BusAndRouting,
    RetriesAndTime,
    LimitsSection,
    Security,
    Temporal,
    Answers,
):
    """Made by `load_settings`, which fills in the defaults that follow from other settings."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """`default`, `environment` or `command line`, by variable."""
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{line.name}={line.value}' for line in self.lines())})"

    def lines(self) -> Iterator[Line]:
        """What is in force and where it came from; secrets are masked."""
        for name, row in ROWS.items():
            value = getattr(self, name)
            shown = row.kind.show or show
            text = (MASK if value else NONE) if row.secret else shown(value)
            yield Line(row.env, text, self.sources.get(row.env, "default"), row.about)

    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=self.max_attempts,
            ack_timeout=self.ack_timeout,
            lease=self.step_result_timeout if self.temporal_enabled else self.lease,
            publish_backoff=self.publish_backoff,
            ack_backoff=self.ack_backoff,
            execution_backoff=self.execution_backoff,
        )

    def limits(self) -> Limits:
        return Limits(
            tenant=self.max_inflight_per_tenant,
            total=self.max_inflight,
            lane=self.max_inflight_per_lane,
        )

    def protocol_paths(self) -> tuple[Path, ...]:
        return tuple(
            PACKAGED_PROTOCOLS if name == PACKAGED else Path(name).expanduser()
            for name in self.protocols
        )

    def ingress_policy(self) -> IngressPolicy:
        fails = self.sla_action == "fail"
        return IngressPolicy(
            workspace_url=self.workspace_url,
            system=self.system,
            engine="temporal" if self.temporal_enabled else "outbox",
            topology=self.lane_topology,
            delimiter=self.routing_delimiter,
            references=ReferencePolicy(self.reference_schemes, self.reference_hosts),
            webhook_schemes=self.webhook_schemes,
            webhook_hosts=self.webhook_hosts,
            max_payload_bytes=self.max_payload_bytes,
            allow_payload_secrets=self.allow_payload_secrets,
            limits=self.limits(),
            sla=Sla(job=self.job_sla, pause=self.pause_sla, fail_job=fails, fail_pause=fails),
        )
