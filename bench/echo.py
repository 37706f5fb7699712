"""The services of the end-to-end benchmark: the kit with trivial work, as the peers do.

Each does its work once as a service without outputs, and once with the default: it stages a small
file, which the kit commits and promotes.
"""

from lucius.platform import Output, Service, Task


class Echo(Service):
    commit = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.step_types = (name.upper(),)

    async def execute(self, task: Task) -> Output:
        return Output({"uri": f"s3://bucket/work/{task.job_id}/{self.name}"})


class Scribe(Service):
    def __init__(self, name: str) -> None:
        self.name = name
        self.step_types = (name.upper(),)

    async def execute(self, task: Task) -> None:
        await task.stage("output.json", f'{{"job": "{task.job_id}", "step": "{self.name}"}}')


ocr, embedding, sis = Echo("ocr"), Echo("embedding"), Echo("sis")
ocr_committed, embedding_committed, sis_committed = (
    Scribe("ocr"),
    Scribe("embedding"),
    Scribe("sis"),
)
