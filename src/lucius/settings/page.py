"""The reference page of all settings, generated from their table."""

from typing import Final

from lucius.settings.kinds import PREFIX, Declared
from lucius.settings.table import SECTIONS, declared

_HEAD: Final = """# Settings

Generated from `src/lucius/settings`. Do not edit.

All settings are environment variables; an empty one counts as not set. Seconds may be fractions, lists are
comma-separated. `lucius settings` prints what is in force and where each value came from. An unknown
`LUCIUS_*` variable is warned about by name; a bad value stops the start and every bad one is listed.
"""


_COLUMNS: Final = "| variable | value | default | what it is |\n|---|---|---|---|\n"


def settings_page() -> str:
    """Markdown, one table for each section."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(f"\n## {section.__doc__}\n\n{_COLUMNS}")
        parts += [_row(row) for row in declared(section).values()]
    return "".join(parts)


def _row(row: Declared) -> str:
    about = f"{row.about}. Secret: never printed" if row.secret else row.about
    return f"| `{row.env}` | {row.kind.name} | {_default(row)} | {about} |\n"


def _default(row: Declared) -> str:
    text = row.shown_default
    if not text or "`" in text:
        return text
    return text if text.startswith(PREFIX) else f"`{text}`"
