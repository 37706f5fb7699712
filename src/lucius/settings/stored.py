"""Settings from App Configuration: which may come from there, and which of them a process reads again."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from lucius.core.plan import BACKOFFS, RetryPolicy
from lucius.settings.loading import DEFAULT, STORED, SettingsError, load_settings
from lucius.settings.table import ROWS, Settings

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
