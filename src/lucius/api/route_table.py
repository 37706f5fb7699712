"""Which operation a request is for: by its path as it is, or by the pattern of a path with parameters.

This is the only way from a request to an operation. With FastAPI's router a
read of a job took 505 us of CPU instead of 315; docs/decisions/0025 has the numbers.
"""

import re
from collections.abc import Mapping
from typing import Final

from lucius.api.operation import Endpoint
from lucius.api.problems import Problem

_PARAMETER: Final = re.compile(r"\\{(\w+)\\}")
Endpoints = dict[str, Endpoint]
"""By method."""


class RouteTable:
    def __init__(self) -> None:
        self._fixed: dict[str, Endpoints] = {}
        self._patterns: dict[str, tuple[re.Pattern[str], Endpoints]] = {}

    def add(self, method: str, path: str, endpoint: Endpoint) -> None:
        if "{" not in path:
            self._fixed.setdefault(path, {})[method] = endpoint
            return
        pattern = _PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(path))
        self._patterns.setdefault(path, (re.compile(pattern), {}))[1][method] = endpoint

    def find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]]:
        """The endpoint and the parameters of the path. Raises the problem of a request that none takes."""
        matching = self._fixed.get(path)
        if matching is not None and method in matching:
            return matching[method], {}
        for pattern, endpoints in self._patterns.values():
            if found := pattern.fullmatch(path):
                if method in endpoints:
                    return endpoints[method], found.groupdict()
                matching = matching or endpoints
        if matching is None:
            raise Problem("NOT_FOUND")
        raise Problem("METHOD_NOT_ALLOWED", headers={"allow": ", ".join(matching)})
