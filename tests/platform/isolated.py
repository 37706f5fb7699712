"""Services for child processes. They live in a module, as a child finds them by name."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from lucius.platform import FatalError, ObjectMissingError, Output, Service, SyncTask, Task
from lucius.platform.task import SMALL

MIB = 1024 * 1024
log = logging.getLogger("tests.isolated")


def lose_memory() -> None:
    kept = []
    while True:
        kept.append(bytearray(MIB))


def never_end() -> None:
    while True:
        pass


def die_by(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


DEEDS: dict[str, Callable[[], Any]] = {
    "exit": lambda: os._exit(3),
    "crash": lambda: ctypes.string_at(0),
    "killed": die_by(signal.SIGKILL),
    "sys.exit": lambda: sys.exit("enough"),
    "interrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt),
    "defect": lambda: DEEDS["nothing"],
    "memory": lose_memory,
    "for ever": never_end,
}


def written_at_once(text: str) -> str:
    """Long enough to be staged as an object, so that a test sees it before the step ends."""
    return text.ljust(SMALL + 1)


class Deeds(Service):
    """Does what its payload says; without a deed it stages who did it."""

    name = "ocr"
    step_types = ("OCR",)
    isolation = "process"
    processes = 2
    memory_limit = 192 * MIB
    cancel_grace: timedelta | None = timedelta(milliseconds=50)

    def execute(self, task: SyncTask) -> Output:
        DEEDS.get(task.payload.get("deed"), lambda: None)()
        text = task.input().decode()
        task.stage("output.txt", f"{text} by {os.getpid()}")
        return Output()


class Hasty(Deeds):
    time_limit = timedelta(milliseconds=200)


class Alone(Deeds):
    processes = 1
    tasks_per_process = 2


class Attentive(Deeds):
    """Stops when it is told."""

    cancel_grace = None

    def execute(self, task: SyncTask) -> Output:
        task.report("begun")
        task.stage("begun.txt", written_at_once("yes"))
        while not task.cancel_requested:
            time.sleep(0.01)
        task.check_cancelled()
        return Output()


class Asynchronous(Service):
    """The same methods as on the loop, awaited; and errors that can be caught."""

    name = "ocr"
    step_types = ("OCR",)
    isolation = "process"
    processes = 1

    async def execute(self, task: Task) -> Output:
        one, other = await asyncio.gather(task.input(), task.latest())
        assert one == other
        log.warning("executing in %d", os.getpid())
        try:
            await task.read("mem://inputs/none")
        except ObjectMissingError as error:
            await task.stage("notes/error.txt", f"{error}")
        await task.stage("output.txt", one.upper())
        return Output(name="output.txt")


class Parent(Deeds):
    """Starts a process of its own and waits for it for ever."""

    def execute(self, task: SyncTask) -> Output:
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        task.stage("pids.txt", written_at_once(f"{os.getpid()} {started.pid}"))
        started.wait()
        return Output()


class Curious(Deeds):
    """Tells what a child can see of the server."""

    environment = ("MODEL_FOLDER", "NOT_SET")

    def execute(self, task: SyncTask) -> Output:
        if "callback_token" in task.directive:
            raise FatalError("a child may speak for the attempt")
        parent = Path(f"/proc/{os.getppid()}/environ").read_text().replace("\0", " ")
        task.stage(
            "output.txt", " ".join(f"{name}={os.environ[name]}" for name in os.environ) + parent
        )
        try:
            task.read("mem://lucius/tenant_b/job_9/secret.txt")
        except Exception as error:
            task.stage("refused.txt", type(error).__name__)
        return Output(name="output.txt")


class NotJson(Deeds):
    def execute(self, task: SyncTask) -> Output:
        return Output(ref={1, 2})


class Threaded(Service):
    """A plain function without isolation."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.refused = threading.Event()

    def execute(self, task: SyncTask) -> Output:
        self.threads.append(threading.current_thread().name)
        self.begun.set()
        deed = task.payload.get("deed")
        if deed == "wait":
            self.let_go.wait()
            try:
                task.stage("output.txt", "too late")
            except Exception:
                self.refused.set()
                raise
        DEEDS.get(deed, lambda: None)()
        task.stage("output.txt", task.input())
        return Output()
