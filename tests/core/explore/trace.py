"""A counterexample in words: the actions from the start, one line each, and the job it ended with."""

from typing import NamedTuple

from lucius.core.job import Job


class Action(NamedTuple):
    """One line of a trace: who does what, and the input that it gives to `decide`, if any."""

    what: str
    about: object = None
    actor: int = 0


def told(broken: str, actions: list[Action]) -> str:
    lines = [f"broken: {broken}", "  0. the job is accepted"]
    lines += [f"  {number}. {line(action)}" for number, action in enumerate(actions, 1)]
    return "\n".join(lines)


def line(action: Action) -> str:
    who = "" if action.what.startswith("the ") else f"reconciler {action.actor + 1} "
    about = f": {short(action.about)}" if action.about is not None else ""
    return f"{who}{action.what}{about}"


def short(about: object) -> str:
    """`AckReceived(a, 1, a1)`: the fields that identify, without their names."""
    if isinstance(about, str):
        return f"deadline of {about}"
    fields = getattr(about, "__slots__", ())
    values = [getattr(about, name) for name in fields if name in _IDENTIFYING]
    shown = ", ".join(str(value) for value in values if value not in (None, False))
    return f"{type(about).__name__}({shown})"


_IDENTIFYING = ("step_id", "attempt_no", "lease_id", "status", "immediate", "lost_owner", "owed_id")


def shown(job: Job) -> list[str]:
    lines = ["the job before the last line:", f"  job {job.state}"]
    for planned, step in zip(job.plan.steps, job.steps, strict=True):
        entry = step.entry.state if step.entry is not None else "none"
        executions = " ".join(f"{e.exec_id}={e.state}" for e in step.executions) or "none"
        lines.append(
            f"  step {planned.step_id} {step.state}, entry {entry}, executions {executions}"
        )
    return lines
