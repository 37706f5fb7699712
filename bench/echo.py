"""The services of the end-to-end benchmark: the kit with trivial work, as the peers do."""

from lucius.platform import Output, Service, Task


class Echo(Service):
    commit = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.step_types = (name.upper(),)

    async def execute(self, task: Task) -> Output:
        return Output({"uri": f"s3://bucket/work/{task.job_id}/{self.name}"})


ocr, embedding, sis = Echo("ocr"), Echo("embedding"), Echo("sis")
