"""The settings as one object, and what the parts of LUCIUS take from it."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import SecretStr, ValidationError

from lucius import __version__
from lucius.adapters.configs.files import PACKAGED as PACKAGED_PROTOCOLS
from lucius.adapters.ledgers import LEDGERS, LedgerKind
from lucius.app.settings.behaviour import (
    CommandLine,
    Console,
    General,
    LimitsSection,
    RetriesAndTime,
    Security,
)
from lucius.app.settings.connections import (
    PACKAGED,
    Answers,
    BusAndRouting,
    Configuration,
    Storage,
    Temporal,
)
from lucius.app.settings.kinds import MASK, NONE, PREFIX, RESERVED, Section, SettingRow, rows, show
from lucius.contract.words import JsonObject
from lucius.core.errors import LuciusError
from lucius.core.plan import BACKOFFS, OUTBOX, TEMPORAL, RetryPolicy, Sla
from lucius.core.references import ReferencePolicy
from lucius.core.routing import TOPOLOGIES
from lucius.engine.admission.ingress import IngressPolicy
from lucius.ports.ledger import Limits

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


# Settings from environment variables and files: checked together, every fault named at once.
#
# Not pydantic-settings: decision 0026 says why.

Mistakes = dict[str, str]

DECLARED: Final = {row.env: row for section in SECTIONS for row in rows(section).values()}
FILES: Final = {f"{env}_FILE": env for env, row in DECLARED.items() if row.secret}
"""Variables that name a file, and the secret that is read from it."""
LARGEST_FILE: Final = 65_536
NEEDED: Final = (
    *(("LUCIUS_STORAGE_BACKEND", (name,), kind.needs) for name, kind in LEDGERS.items()),
    ("LUCIUS_BUS_BACKEND", ("servicebus",), ("LUCIUS_SERVICEBUS_CONNECTION",)),
    ("LUCIUS_CONFIG_SOURCE", ("appconfig",), ("LUCIUS_APPCONFIG_CONNECTION",)),
    (
        "LUCIUS_AUTH",
        ("jwt",),
        ("LUCIUS_JWT_ISSUER", "LUCIUS_JWT_AUDIENCE", "LUCIUS_JWT_JWKS_URL"),
    ),
)
"""Where one of these values is chosen, those variables must be set too."""


STORED: Final = "app configuration"
DEFAULT: Final = "default"
"""Sources that a running process may look at again."""


class Given(NamedTuple):
    """What a variable was set to, and by whom."""

    text: str
    source: str


class SettingsError(LuciusError):
    """Settings are missing or bad. `faults` lists every variable with its reason."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("\n".join(f"{name}: {reason}" for name, reason in faults.items()))
        self.faults = tuple(faults.items())


def load_settings(
    environ: Mapping[str, str] | None = None,
    *,
    options: Mapping[str, str] | None = None,
    stored: Mapping[str, str] | None = None,
) -> Settings:
    """Raises SettingsError. An empty variable counts as not set.

    `options` come from the command line, by variable, and go before the environment. `stored` come
    from App Configuration, and go behind it. `warnings` names what is unknown or reserved; the caller
    prints or logs it.
    """
    given = _given(stored or {}, STORED)
    given |= _given(os.environ if environ is None else environ, "environment")
    given |= _given(options or {}, "command line")
    warnings = tuple(_warnings(given))
    faults: Mistakes = {}
    _read_files(given, faults)
    _check_needed(given, faults)
    values = {name: each.text for name, each in given.items()}
    sources = {row.env: DEFAULT for row in ROWS.values()}
    sources |= {name: each.source for name, each in given.items() if name in sources}
    try:
        settings = Settings.model_validate({**values, "sources": sources, "warnings": warnings})
    except ValidationError as error:
        faults |= _bad_values(error, given)
    if faults:
        known = [name for env in DECLARED for name in (env, f"{env}_FILE")]
        raise SettingsError({name: faults[name] for name in known if name in faults})
    return settings


def _given(variables: Mapping[str, str], source: str) -> dict[str, Given]:
    return {
        name: Given(text, source)
        for name, text in variables.items()
        if name.startswith(PREFIX) and text
    }


def _read_files(given: dict[str, Given], faults: Mistakes) -> None:
    """A secret that stands in a file takes the place of its variable, which must not be set as well."""
    for name in FILES.keys() & given.keys():
        path, env = given[name].text, FILES[name]
        if env in given:
            faults[name] = f"must not be set where {env} is: leave one of them out"
            continue
        try:
            given[env] = Given(_secret_in(Path(path)), f"file {path}")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            faults[name] = f"must name a file that holds the secret: {path}: {reason}"


def _secret_in(path: Path) -> str:
    """The line break at its end is not part of it."""
    with path.open("rb") as file:
        found = file.read(LARGEST_FILE + 1)
    if len(found) > LARGEST_FILE:
        raise ValueError(f"it is larger than {LARGEST_FILE} bytes")
    try:
        text = found.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if not text:
        raise ValueError("it is empty")
    return text


def _check_needed(given: Mapping[str, Given], faults: Mistakes) -> None:
    for chooser, choices, needed in NEEDED:
        if chooser not in given or given[chooser].text not in choices:
            continue
        for name in needed:
            if name not in given and f"{name}_FILE" not in given:
                faults[name] = f"is needed with {chooser}={given[chooser].text}"


def _bad_values(error: ValidationError, given: Mapping[str, Given]) -> Mistakes:
    """A default that could not be derived is no fault of its own: it follows from a bad value."""
    faults: Mistakes = {}
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        if fault["type"] != "default_factory_not_called":
            row = DECLARED[str(fault["loc"][0])]
            value = "" if row.secret else f", not {show(given[row.env].text)!r}"
            faults[row.env] = f"must be {row.takes.words}{value}"
    return faults


def _warnings(given: Mapping[str, Given]) -> Iterator[str]:
    known = [row.env for row in ROWS.values()]
    known += [name for name, env in FILES.items() if env not in RESERVED]
    for name in sorted(given.keys() - set(known)):
        why = RESERVED.get(name) or RESERVED.get(name.removesuffix("_FILE"))
        if why is not None:
            yield f"{name} is not used by this version: {why}"
            continue
        close = get_close_matches(name, known, n=1, cutoff=0.8)
        hint = f": did you mean {close[0]}?" if close else ""
        yield f"unknown setting {name}{hint}"


# Settings from App Configuration: which may come from there, and which of them a process reads again.

log = logging.getLogger("lucius.settings")

RELOADED: Final = ("max_attempts", "ack_timeout", "lease", *BACKOFFS)
"""A change counts for jobs that are accepted from then on. Every other one waits for the next start."""
NEVER_STORED: Final = ("system", "data_dir", "url")
"""The label of what is stored, where this process keeps its files, and what only clients read."""


def when_stored(name: str) -> str:
    """When a value in App Configuration counts, for the table of the settings."""
    if ROWS[name].secret or name in NEVER_STORED:
        return "never"
    return "reloads" if name in RELOADED else "at start"


def check_stored(stored: Mapping[str, str]) -> None:
    """Raises SettingsError: who may read App Configuration is not who may read secrets."""
    rows = {row.env: (name, row) for name, row in ROWS.items()}
    faults: dict[str, str] = {}
    for env in sorted(stored):
        name, row = rows.get(env, ("", None))
        if row is not None and when_stored(name) == "never":
            kind = "a secret" if row.secret else "a setting of each process"
            faults[env] = f"is {kind} and cannot come from App Configuration: set the variable"
    if faults:
        raise SettingsError(faults)


class StoredSettings:
    """The settings of a process, and what is stored in App Configuration by now."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: Mapping[str, str] | None = None

    def in_force(self) -> Settings:
        """As they count for a job that is accepted now."""
        return self._settings

    def policy(self, stored: Mapping[str, str]) -> RetryPolicy:
        """Retries and timeouts as they are stored now. Raises SettingsError."""
        check_stored(stored)
        open_rows = {
            name: ROWS[name].env
            for name in RELOADED
            if self._settings.sources.get(ROWS[name].env, DEFAULT) in (DEFAULT, STORED)
        }
        fresh = load_settings(
            {}, stored={env: stored[env] for env in open_rows.values() if env in stored}
        )
        self._tell_of_changes(stored)
        changed: dict[str, Any] = {name: getattr(fresh, name) for name in open_rows}
        named = {env: fresh.sources[env] for env in open_rows.values()}
        sources = {**self._settings.sources, **named}
        self._settings = self._settings.model_copy(update={**changed, "sources": sources})
        return self._settings.retry_policy()

    def _tell_of_changes(self, stored: Mapping[str, str]) -> None:
        """Some changes wait for the next start. Who made one should not wait for its effect."""
        before, self._seen = self._seen, stored
        reloaded = {ROWS[name].env for name in RELOADED}
        changed = {env for env, _ in (before or stored).items() ^ stored.items()} - reloaded
        if changed:
            names = ", ".join(sorted(changed))
            log.warning("%s changed in App Configuration: it counts from the next start", names)


# The reference page of all settings, generated from their sections.

_HEAD: Final = """# Settings

Generated from `src/lucius/app/settings`. Do not edit.

All settings are environment variables; an empty one counts as not set. Seconds may be fractions. `lucius
settings` prints what is in force and where each value came from. A bad value stops the start, and every bad
one is listed. An unknown `LUCIUS_*` variable is only warned about, by name.

Secrets are never printed. A secret may stand in a file: then the variable with `_FILE` at its end names that
file, for example `LUCIUS_WEBHOOK_SECRET_FILE=/run/secrets/webhook`. A line break at its end does not count.

Where `LUCIUS_APPCONFIG_CONNECTION` is set, what is no variable is looked up in
[App Configuration](../how-to/azure-configuration.md). A value there counts from the start of a process; one
marked *reloads* with the next refresh too, one marked *never stored* not at all.
"""
_COLUMNS: Final = "| variable | default | what it is |\n|---|---|---|\n"
_MARKS: Final = {"at start": "", "reloads": "*reloads*", "never": "*never stored*"}
_RESERVED: Final = """
## Reserved

These names do nothing in this version. Whoever sets one is warned.

| variable | why |
|---|---|
"""


def settings_page() -> str:
    """Markdown, one table for each section."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(f"\n## {section.__doc__}\n\n{_COLUMNS}")
        parts += [_row(name, row) for name, row in in_use(section).items()]
    parts.append(_RESERVED)
    parts += [f"| `{name}` | {why} |\n" for name, why in RESERVED.items()]
    return "".join(parts)


def _row(name: str, row: SettingRow) -> str:
    about = f"{row.about}. Secret, or in a file: `_FILE`" if row.secret else row.about
    notes = (row.takes.words, _MARKS[when_stored(name)])
    noted = f"{about} ({'; '.join(filter(None, notes))})"
    return f"| `{row.env}` | {_default(row)} | {noted} |\n"


def _default(row: SettingRow) -> str:
    text = row.default
    if not text or "`" in text:
        return text
    return text if text.startswith(PREFIX) else f"`{text}`"
