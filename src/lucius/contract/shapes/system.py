"""Health, settings and refusals."""

from typing import NotRequired

from typing_extensions import TypedDict


class FaultShape(TypedDict):
    """`pointer` is a JSON pointer into the body; `parameter` the name of a query parameter or header."""

    detail: str
    pointer: NotRequired[str]
    parameter: NotRequired[str]


class HealthShape(TypedDict):
    status: str


class ReadinessShape(TypedDict):
    """`checks` names every dependency: `ok`, `failed` or `no answer in time`; operators read why.

    `warnings` does not make the process unready: it goes on with what was in force before.
    """

    status: str
    checks: dict[str, str]
    warnings: dict[str, str]


class SettingShape(TypedDict):
    """One setting as it is in force. `source` is where the value comes from. A secret is masked."""

    name: str
    value: str
    source: str
    about: str


class SettingsShape(TypedDict):
    """The settings of the process that answers. `warnings`: variables that are set and do nothing."""

    version: str
    settings: list[SettingShape]
    warnings: list[str]


class ProblemShape(TypedDict):
    """RFC 9457. `code` is stable; each has a reference page."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: NotRequired[list[FaultShape]]


class UnreadyShape(ProblemShape):
    """`/readyz` while a dependency is down: a problem that names every dependency, as `ReadinessShape`."""

    checks: NotRequired[dict[str, str]]
    warnings: NotRequired[dict[str, str]]
