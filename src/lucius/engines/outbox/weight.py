"""How much memory a job takes while it is kept: an estimate that is never far below the truth."""

from sys import getsizeof
from typing import Any, Final

from lucius.core.job import Job
from lucius.core.packed import Packed
from lucius.core.plan import Plan

OF_PLAN: Final = 4_000
"""Bytes of a plan and its job without their steps, references and payloads."""
OF_STEP: Final = 1_500
OF_EXECUTION: Final = 700


def weight_of_plan(plan: Plan) -> int:
    """It never changes, so it is worth remembering."""
    given = (plan.payload, plan.extra, plan.input_ref, plan.output_ref, plan.callback_urls)
    carried = sum(_weight(each.result_ref) for each in plan.carried.values())
    return OF_PLAN + OF_STEP * len(plan.steps) + sum(map(_weight, given)) + carried


def weight_of_moves(job: Job) -> int:
    """What a job has come to have besides its plan."""
    weight = 0
    for step in job.steps:
        if step.executions:
            weight += OF_EXECUTION * len(step.executions)
            if step.result_ref is not None:
                weight += _weight(step.result_ref)
    return weight


def _weight(value: Any) -> int:
    """Bytes of a JSON value with all that is in it."""
    if type(value) is Packed:
        return getsizeof(value.text)
    size = getsizeof(value)
    if isinstance(value, dict):
        return size + sum(_weight(key) + _weight(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return size + sum(map(_weight, value))
    return size
