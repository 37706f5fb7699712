"""Services that do not want to end, each in its way."""

import asyncio
import json

from lucius.platform import Output, Service, Task


class Base(Service):
    name = "ocr"
    step_types = ("OCR",)


class Stubborn(Base):
    """Ignores that it is cancelled."""

    async def execute(self, task: Task) -> Output:
        print(f"begun {task.job_id}", flush=True)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue


class Holding(Base):
    """Holds up the event loop, for ever."""

    async def execute(self, task: Task) -> Output:
        print(f"begun {task.job_id}", flush=True)
        while True:
            json.dumps(list(range(1000)))
