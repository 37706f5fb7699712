"""Rebuilds the states of a job's machines from the `moves` of its events, knowing nothing else."""

from dataclasses import dataclass, field

from lucius.core.effects import Event
from lucius.core.job import Job


@dataclass
class Machines:
    """States by machine. Two moves create: a step that is dispatched, an entry that is released."""

    job: str = "QUEUED"
    steps: dict[str, str] = field(default_factory=dict)
    entries: dict[str, str | None] = field(default_factory=dict)
    executions: dict[str, list[str]] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        for move in event.moves:
            machine, *subject, arrow = move.split()
            source, target = arrow.split("->")
            self._move(machine, subject[0] if subject else "", source, target)

    def _move(self, machine: str, step_id: str, source: str, target: str) -> None:
        if machine == "job":
            assert self.job == source, f"job is {self.job}, the event says {source}"
            self.job = target
        elif machine == "step":
            assert self.steps[step_id] == source, f"{step_id} is {self.steps[step_id]}"
            self.steps[step_id] = target
            if target == "DISPATCHING":
                self.entries[step_id] = "HELD"
        elif machine == "entry":
            assert self.entries[step_id] == source, f"entry of {step_id}"
            self.entries[step_id] = target
            if target == "RELEASED":
                self.executions[step_id].append("LEASED")
        else:
            assert self.executions[step_id][-1] == source, f"execution of {step_id}"
            self.executions[step_id][-1] = target


def machines_of(job: Job) -> Machines:
    """What the job itself says. Attempt 0 is the mark of a job that closed; no machine made it."""
    made = Machines(job.state.value)
    for planned, step in zip(job.plan.steps, job.steps, strict=True):
        made.steps[planned.step_id] = step.state.value
        made.entries[planned.step_id] = step.entry.state.value if step.entry else None
        made.executions[planned.step_id] = [
            execution.state.value for execution in step.executions if execution.attempt_no
        ]
    return made


def folded(job: Job, events: tuple[Event, ...]) -> Machines:
    machines = machines_of(job)
    for event in events:
        machines.apply(event)
    return machines
