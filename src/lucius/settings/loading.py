"""Settings from environment variables and files: checked together, every fault named at once.

Not pydantic-settings: decision 0026 says why.
"""

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from lucius.core.errors import LuciusError
from lucius.ledgers import LEDGERS
from lucius.settings.declaring import PREFIX, rows
from lucius.settings.kinds import show
from lucius.settings.reserved import RESERVED
from lucius.settings.table import ROWS, SECTIONS, Settings

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
