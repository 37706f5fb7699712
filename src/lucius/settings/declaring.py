"""How one setting is declared: a field of a section that knows its environment variable."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from lucius.settings.kinds import Takes, takes

PREFIX: Final = "LUCIUS_"


class Section(BaseModel):
    """Settings that belong together. Its docstring is its heading on the reference page."""

    model_config = ConfigDict(
        frozen=True, validate_default=True, hide_input_in_errors=True, defer_build=True
    )


class SettingRow(NamedTuple):
    """One setting, as the reference page and `lucius settings` show it."""

    env: str
    takes: Takes
    default: str
    about: str

    @property
    def secret(self) -> bool:
        return self.takes.secret


def setting(
    env: str, default: str | Callable[[dict[str, Any]], str], about: str, *, shown: str = ""
) -> Any:
    """A field that is read from LUCIUS_`env`.

    `default` is text, as a user would set it, or makes that text of the settings declared earlier;
    then `shown` says what follows from what.
    """
    how: dict[str, Any] = (
        {"default_factory": default} if callable(default) else {"default": default}
    )
    return Field(**how, alias=PREFIX + env, description=about, examples=[shown])


def rows(section: type[Section]) -> dict[str, SettingRow]:
    """The settings of one section, by field name."""
    return {
        name: _row(field) for name, field in section.model_fields.items() if field.alias is not None
    }


def _row(field: FieldInfo) -> SettingRow:
    (shown,) = field.examples or [""]
    default = shown or (field.default if isinstance(field.default, str) else "")
    return SettingRow(str(field.alias), takes(field), default, field.description or "")
