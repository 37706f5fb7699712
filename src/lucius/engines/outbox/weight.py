"""How much memory a job takes while it is kept: an estimate that is never far below the truth."""

from sys import getsizeof
from typing import Any, Final

from lucius.core.job import Job
from lucius.core.packed import Packed

OF_PLAN: Final = 4_000
"""Bytes of a plan and its job without their steps, references and payloads."""
OF_STEP: Final = 1_500
OF_EXECUTION: Final = 700


def weight_of(job: Job) -> int:
    plan = job.plan
    given = (plan.payload, plan.extra, plan.input_ref, plan.output_ref, plan.callback_urls)
    carried = sum(_weight(each.result_ref) for each in plan.carried.values())
    weight = OF_PLAN + OF_STEP * len(plan.steps) + sum(map(_weight, given)) + carried
    for step in job.steps:
        weight += OF_EXECUTION * len(step.executions)
        weight += _weight(step.result_ref) if step.result_ref is not None else 0
    return weight


def growth(before: Job, job: Job) -> int:
    """How much heavier the job became from one commit to the next. Of its steps, one or two have changed."""
    grown = 0
    for was, step in zip(before.steps, job.steps, strict=True):
        if step is not was:
            if step.executions is not was.executions:
                grown += OF_EXECUTION * (len(step.executions) - len(was.executions))
            if step.result_ref is not was.result_ref:
                grown += _weight(step.result_ref) - _weight(was.result_ref)
    return grown


def _weight(value: Any) -> int:
    """Bytes of a JSON value with all that is in it."""
    if type(value) is Packed:
        return getsizeof(value.text)
    size = getsizeof(value)
    if isinstance(value, dict):
        return size + sum(map(getsizeof, value)) + sum(map(_weight, value.values()))
    if isinstance(value, list | tuple):
        return size + sum(map(_weight, value))
    return size
