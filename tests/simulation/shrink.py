"""A failing plan made shorter: actions are left out, many at once, then one by one, while it still fails."""

import re
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.plan import Plan
from tests.simulation.run import Report, run

MOST_RUNS = 400


def shrunk(plan: Plan, simulate: Callable[[Plan], Report] = run, most: int = MOST_RUNS) -> Report:
    """The shortest failing run that was found. Where the plan does not fail, its own report."""
    best, runs = simulate(plan), 0
    size = max(1, len(plan.actions) // 2)
    while best.broken is not None and runs < most:
        start, shorter = 0, False
        while start < len(best.plan.actions) and runs < most:
            tried = simulate(best.plan.without(start, start + size))
            runs += 1
            if same(tried, best):
                best, shorter = tried, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return _simpler(best, simulate)


def _simpler(best: Report, simulate: Callable[[Plan], Report]) -> Report:
    """Calls that fail always say more than calls that fail at times."""
    if best.broken is None:
        return best
    actions = tuple(
        replace(each, args={**each.args, "chance": 1.0}) if "chance" in each.args else each
        for each in best.plan.actions
    )
    tried = simulate(replace(best.plan, actions=actions))
    return tried if same(tried, best) else best


def same(tried: Report, best: Report) -> bool:
    """Whether both fail in the same way: numbers and ids may differ."""
    if tried.broken is None or best.broken is None:
        return False
    plain = [re.sub(r"[0-9a-f]{6}|[0-9.]+", "", each.broken or "")[:24] for each in (tried, best)]
    return plain[0] == plain[1]
