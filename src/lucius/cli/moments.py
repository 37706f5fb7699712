"""Moments as people type them: an instant, or how long ago."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[str]):
    """`2026-01-31T12:00:00Z`, or `90s`, `30m`, `1h`, `2d`, `1w` for so long ago."""

    name = "INSTANT|AGO"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        found = _AGO.fullmatch(value)
        if found is not None:
            ago = timedelta(**{_UNITS[found[2]]: int(found[1])})
            return (datetime.now(UTC) - ago).isoformat().replace("+00:00", "Z")
        try:
            datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is no moment: give an instant such as 2026-01-31T12:00:00Z, or how long"
                " ago, such as 90s, 30m, 1h, 2d or 1w",
                param,
                ctx,
            )
        return str(value)
