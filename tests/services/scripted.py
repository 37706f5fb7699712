"""A service that does what its payload says, for tests of everything around it.

The payload: `{"script": [...], "seconds": n}`. The n-th entry of the script is what attempt n does:
`"succeed"`, `"retry"`, `"fatal"`, `"crash"` (an error nobody foresaw) or `"hang"`. Past its end it
succeeds. Every execution stages a text that names its attempt and lease, so that a second effect shows.
"""

import asyncio
from dataclasses import dataclass, field

from lucius.platform import FatalError, Output, RetryableError, Service, Task


@dataclass(frozen=True, slots=True)
class Script:
    script: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def of(self, attempt_no: int) -> str:
        return self.script[attempt_no - 1] if attempt_no <= len(self.script) else "succeed"


class Scripted(Service):
    payload_model = Script

    def __init__(self, step_type: str = "SCRIPTED") -> None:
        self.name = step_type.lower()
        self.step_types = (step_type,)
        self.executed: list[tuple[str, str, int]] = []

    async def execute(self, task: Task) -> Output:
        script: Script = task.payload
        self.executed.append((task.job_id, task.step_id, task.attempt_no))
        await asyncio.sleep(script.seconds)
        match script.of(task.attempt_no):
            case "retry":
                raise RetryableError("scripted", code="SCRIPTED")
            case "fatal":
                raise FatalError("scripted", code="SCRIPTED")
            case "crash":
                raise RuntimeError("scripted")
            case "hang":
                await asyncio.Event().wait()
        await task.stage("output.txt", f"{task.job_id} {task.attempt_no} {task.lease_id}")
        return Output(name="output.txt")


scripted = Scripted()
