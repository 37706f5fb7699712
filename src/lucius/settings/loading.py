"""Settings from environment variables: all read, checked together, every fault named at once."""

import logging
import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from lucius.core.errors import LuciusError
from lucius.settings.kinds import PREFIX, Declared, show
from lucius.settings.table import ROWS, Settings

log = logging.getLogger("lucius.settings")

Faults = dict[str, str]

NEEDED: Final = (
    ("storage_backend", ("ledger", "table"), ("table_connection",)),
    ("bus_backend", ("servicebus",), ("servicebus_connection",)),
    ("config_source", ("appconfig",), ("appconfig_connection",)),
    ("auth", ("jwt",), ("jwt_issuer", "jwt_audience", "jwt_jwks_url")),
)
"""Where one of these values is chosen, those settings must be there too."""


STORED: Final = "app configuration"
DEFAULT: Final = "default"
"""Sources that a running process may look at again."""


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
    """Raises SettingsError. An empty variable counts as not set; an unknown one is warned about.

    `options` come from the command line, by variable, and go before the environment. `stored` come
    from App Configuration, and go behind it.
    """
    options, stored = _given(options or {}), _given(stored or {})
    environ = _given(os.environ if environ is None else environ)
    given = {**stored, **environ, **options}
    faults: Faults = {}
    values = _values(given, faults)
    _check_needed(values, faults)
    if faults:
        known = [row.env for row in ROWS.values()]
        raise SettingsError({env: faults[env] for env in known if env in faults})
    warnings = tuple(_unknown(given))
    for warning in warnings:
        log.warning(warning)
    where = {"command line": options, "environment": environ, STORED: stored}
    sources = {
        row.env: next((name for name, found in where.items() if row.env in found), DEFAULT)
        for row in ROWS.values()
    }
    return Settings(**values, sources=sources, warnings=warnings)


def _given(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in variables.items() if name.startswith(PREFIX) and text}


def _values(given: Mapping[str, str], faults: Faults) -> dict[str, Any]:
    """Plain settings first, then those whose default follows from others."""
    values: dict[str, Any] = {}
    for derived in (False, True):
        for name, row in ROWS.items():
            if callable(row.default) is derived:
                values[name] = _value(row, given, values, faults)
    return values


def _value(
    row: Declared, given: Mapping[str, str], values: Mapping[str, Any], faults: Faults
) -> Any:
    try:
        if row.env in given:
            return row.kind.parse(given[row.env])
    except ValueError as error:
        given_value = "" if row.secret else f", not {show(given[row.env])!r}"
        faults[row.env] = f"{error}{given_value}"
    default = row.default if isinstance(row.default, str) else row.default(values)
    return row.kind.parse(default)


def _check_needed(values: Mapping[str, Any], faults: Faults) -> None:
    for chooser, choices, needed in NEEDED:
        if values[chooser] not in choices:
            continue
        for name in needed:
            if not values[name]:
                reason = f"is needed with {ROWS[chooser].env}={values[chooser]}"
                faults.setdefault(ROWS[name].env, reason)


def _unknown(given: Mapping[str, str]) -> Iterator[str]:
    known = [row.env for row in ROWS.values()]
    for name in sorted(given.keys() - set(known)):
        close = get_close_matches(name, known, n=1, cutoff=0.8)
        hint = f": did you mean {close[0]}?" if close else ""
        yield f"unknown setting {name}{hint}"
