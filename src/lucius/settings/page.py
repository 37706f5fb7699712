"""The reference page of all settings, generated from their table."""

from typing import Final

from lucius.settings.kinds import PREFIX, Declared
from lucius.settings.stored import when_stored
from lucius.settings.table import SECTIONS, declared

_HEAD: Final = """# Settings

Generated from `src/lucius/settings`. Do not edit.

All settings are environment variables; an empty one counts as not set. Seconds may be fractions, lists are
comma-separated. `lucius settings` prints what is in force and where each value came from. An unknown
`LUCIUS_*` variable is warned about by name; a bad value stops the start and every bad one is listed.

Where `LUCIUS_APPCONFIG_CONNECTION` is set, what is no variable is looked up in
[App Configuration](../how-to/azure-configuration.md). The column `stored` says when a value there counts:
at the start of a process, with the next refresh too (`reloads`), or never.
"""


_COLUMNS: Final = "| variable | value | default | stored | what it is |\n|---|---|---|---|---|\n"


def settings_page() -> str:
    """Markdown, one table for each section."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(f"\n## {section.__doc__}\n\n{_COLUMNS}")
        parts += [_row(name, row) for name, row in declared(section).items()]
    return "".join(parts)


def _row(name: str, row: Declared) -> str:
    about = f"{row.about}. Secret: never printed" if row.secret else row.about
    cells = (f"`{row.env}`", row.kind.name, _default(row), when_stored(name), about)
    return f"| {' | '.join(cells)} |\n"


def _default(row: Declared) -> str:
    text = row.shown_default
    if not text or "`" in text:
        return text
    return text if text.startswith(PREFIX) else f"`{text}`"
