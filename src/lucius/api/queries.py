"""Query parameters that a route does not have are refused, and so are those that are given twice."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from starlette.requests import Request

from lucius.api.problems import parameter_problem

REPEATABLE: Final = "x-lucius-repeatable"
"""In the document of a parameter: it may be given several times, which is the same as with commas."""
_MAX_NAME: Final = 64


def query_check(parameters: Iterable[Mapping[str, Any]]) -> Callable[[Request], None]:
    """Raises the problem that names the first parameter which the route does not take so."""
    known = {each["name"]: REPEATABLE in each for each in parameters if each["in"] == "query"}
    takes = f"it takes {', '.join(known)}" if known else "it takes none"

    def check(request: Request) -> None:
        given = Counter(name for name, _ in request.query_params.multi_items())
        for name, times in given.items():
            if name not in known:
                detail = f"this route has no such parameter; {takes}"
                raise parameter_problem(name[:_MAX_NAME], detail, "UNKNOWN_PARAMETER")
            if times > 1 and not known[name]:
                raise parameter_problem(name, f"must be given once, not {times} times")

    return check
