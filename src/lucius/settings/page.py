"""The reference page of all settings, generated from their sections."""

from typing import Final

from lucius.settings.declaring import PREFIX, SettingRow
from lucius.settings.reserved import RESERVED
from lucius.settings.stored import when_stored
from lucius.settings.table import SECTIONS, in_use

_HEAD: Final = """# Settings

Generated from `src/lucius/settings`. Do not edit.

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
