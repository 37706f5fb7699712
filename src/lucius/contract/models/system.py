"""Health and settings of the process that answers."""

from typing import Annotated

from pydantic import Field

from lucius.contract.models.base import View, words


class HealthView(View):
    """The process is alive."""

    status: Annotated[str, words("ok")] = Field(description="The process is alive", examples=["ok"])


class ReadinessView(View):
    """Operators read of every dependency why it is not well; others see which one."""

    status: Annotated[str, words("ready")] = Field(
        description="All that it needs is well", examples=["ready"]
    )
    checks: dict[str, str] = Field(
        description="Every dependency, and whether it is well: `ok`, `failed` or `no answer in time`",
        examples=[{"ledger": "ok", "bus": "ok"}],
    )
    warnings: dict[str, str] = Field(
        description="What is wrong without making it unready, by part: it goes on with what was in force"
        " before",
        examples=[{}],
    )


class SettingView(View):
    """One setting as it is in force."""

    name: str = Field(description="The environment variable", examples=["LUCIUS_MAX_ATTEMPTS"])
    value: str = Field(description="The value in force; a secret is masked", examples=["3"])
    source: str = Field(description="Where the value comes from", examples=["default"])
    about: str = Field(description="What the setting does", examples=["Attempts of each step"])


class SettingsView(View):
    """The settings of the process that answers."""

    version: str = Field(description="The version of LUCIUS that answers", examples=["0.1.0"])
    settings: list[SettingView] = Field(description="Every setting")
    warnings: list[str] = Field(description="Variables that are set and do nothing", examples=[[]])
