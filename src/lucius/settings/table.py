"""The settings as one object, and what the parts of LUCIUS take from it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import SecretStr

from lucius import __version__
from lucius.admission.ingress import IngressPolicy
from lucius.configs.files import PACKAGED as PACKAGED_PROTOCOLS
from lucius.contract.envelope import JsonObject
from lucius.core.plan import BACKOFFS, OUTBOX, TEMPORAL, RetryPolicy, Sla
from lucius.core.references import ReferencePolicy
from lucius.core.routing import TOPOLOGIES
from lucius.ledgers import LEDGERS, LedgerKind
from lucius.ports.ledger import Limits
from lucius.settings.behaviour import (
    CommandLine,
    Console,
    General,
    LimitsSection,
    RetriesAndTime,
    Security,
)
from lucius.settings.connections import PACKAGED, Answers, BusAndRouting, Configuration, Storage
from lucius.settings.declaring import Section, SettingRow, rows
from lucius.settings.kinds import MASK, NONE
from lucius.settings.reserved import RESERVED
from lucius.settings.workflows import Temporal

SECTIONS: Final[tuple[type[Section], ...]] = (
    General,
    CommandLine,
    Configuration,
    Storage,
    BusAndRouting,
    RetriesAndTime,
    LimitsSection,
    Security,
    Console,
    Temporal,
    Answers,
)


PAUSES: Final = 7
"""A job may stay paused for seven times as long as it may live: people pause over holidays."""


class Line(NamedTuple):
    """One setting as it is in force, fit to be printed."""

    name: str
    value: str
    source: str
    about: str


def in_use(section: type[Section]) -> dict[str, SettingRow]:
    """The settings of a section that do something in this version, by field name."""
    return {name: row for name, row in rows(section).items() if row.env not in RESERVED}


ROWS: Final = {name: row for section in SECTIONS for name, row in in_use(section).items()}


class Settings(
    Answers,
    Console,
    Temporal,
    Security,
    LimitsSection,
    RetriesAndTime,
    BusAndRouting,
    Storage,
    Configuration,
    CommandLine,
    General,
):
    """Made by `load_settings`. The last base comes first: a default follows from settings before it."""

    sources: Mapping[str, str]
    """`default`, `app configuration`, `environment`, `command line` or the name of a file, by variable."""
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{line.name}={line.value}' for line in self.lines())})"

    __str__ = __repr__

    @property
    def ledger(self) -> LedgerKind:
        """What is known of the ledger before it is opened."""
        return LEDGERS[self.storage_backend]

    @property
    def shared(self) -> bool:
        """Whether other processes have the same ledger open."""
        return self.ledger.shared

    def given(self, variables: Iterable[str]) -> dict[str, str]:
        """Their values as text, secrets too."""
        names = {row.env: name for name, row in ROWS.items()}
        found = {env: getattr(self, names[env]) for env in variables}
        return {
            env: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            for env, value in found.items()
        }

    def lines(self) -> Iterator[Line]:
        """What is in force and where it came from; secrets are masked."""
        for name, row in ROWS.items():
            value = getattr(self, name)
            text = (MASK if value else NONE) if row.secret else row.takes.show(value)
            yield Line(row.env, text, self.sources.get(row.env, "default"), row.about)

    def shown(self) -> JsonObject:
        """The same for the API: what `lucius settings --server` prints."""
        lines: list[JsonObject] = [
            {"name": each.name, "value": each.value, "source": each.source, "about": each.about}
            for each in self.lines()
        ]
        return {"version": __version__, "settings": lines, "warnings": list(self.warnings)}

    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=self.max_attempts,
            ack_timeout=self.ack_timeout,
            lease=self._lease(),
            **{name: getattr(self, name) for name in BACKOFFS},
        )

    def _lease(self) -> timedelta:
        on_temporal = self.step_result_timeout if self.temporal_enabled else None
        return on_temporal or self.lease

    def limits(self) -> Limits:
        return Limits(
            tenant=self.max_inflight_per_tenant,
            total=self.max_inflight,
            lane=self.max_inflight_per_lane,
            burst_lane=self.max_inflight_per_lane_burst,
        )

    def topologies(self) -> tuple[str, ...]:
        """Those whose topics are listened on, that of new jobs first. On Service Bus each has a price."""
        others = () if self.bus_backend == "servicebus" else TOPOLOGIES
        return tuple(dict.fromkeys((*self.lane_topologies, *others)))

    @property
    def topic_prefix(self) -> str:
        """What the names of topics begin with: other deployments may share a namespace of Service Bus."""
        return self.servicebus_prefix if self.bus_backend == "servicebus" else ""

    @property
    def lane_topology(self) -> str:
        """That of new jobs."""
        return self.lane_topologies[0]

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
            engine=TEMPORAL if self.temporal_enabled else OUTBOX,
            topology=self.lane_topology,
            delimiter=self.routing_delimiter,
            references=ReferencePolicy(self.reference_schemes, self.reference_hosts),
            webhook_hosts=self.webhook_hosts,
            allow_payload_secrets=self.allow_payload_secrets,
            limits=self.limits(),
            sla=Sla(
                job=self.job_sla,
                pause=PAUSES * self.job_sla,
                fail_job=fails,
                fail_pause=fails,
                limit=self.temporal_workflow_execution_timeout if self.temporal_enabled else None,
            ),
        )
