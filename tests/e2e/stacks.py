"""The stacks that the suite runs on, each as a user would start it: `lucius up --stack NAME`."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

from tests.faults.server import LUCIUS, REPOSITORY, STEPS, Server
from tests.temporal.server import TemporalServer

ON_TEMPORAL = "embedded on temporal"
"""One process, whose jobs run on a Temporal server that is there already."""
STACKS = (ON_TEMPORAL, "nats", "azure", "temporal")
SERVICES = tuple(f"tests.faults.kill_services:{step.lower()}" for step in STEPS)
WAIT = 60
LOOKS, BETWEEN = 12, 5.0
LEASE = "8"
"""Seconds after which the lanes of a dead owner are taken over."""


class Stack:
    """A running stack. `parts` are its processes; embedded, there is one."""

    def __init__(
        self, name: str, folder: Path, services: Sequence[str] = SERVICES, **settings: str
    ) -> None:
        self.name = name
        self._services = services
        self.server = Server(folder / "data", **settings)
        self.url = ""
        self.urls: list[str] = []
        """Of every process that serves the API."""
        self._log = (folder / "up.log").open("ab")
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        line = self.launch().readline()
        assert line, self.log()
        self.url = json.loads(line)["url"]
        self.urls = json.loads(line).get("urls", [self.url])

    def launch(self) -> IO[str]:
        """It says there when it is ready."""
        services = [word for name in self._services for word in ("--service", name)]
        chosen = ["--stack", self.name.split()[0], "--port", "0", "--no-services"]
        accepted = ["--shared-machine"] if self.name == "temporal" else []
        words = ["up", *chosen, *accepted, *services, "--json"]
        self._process = subprocess.Popen(
            [LUCIUS, *words],
            cwd=REPOSITORY,
            env=self.server.environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        return self._process.stdout

    def parts(self, *words: str) -> list[int]:
        """The ids of the processes of this stack whose command has all these words."""
        assert self._process is not None
        found = subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(self._process.pid)],
            capture_output=True,
            text=True,
            check=False,  # 1: there is none
        )
        lines = [line.split(None, 1) for line in found.stdout.splitlines()]
        return [int(pid) for pid, args in lines if all(word in args for word in words)]

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(180)

    def close(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
        self._log.close()
        self.server.close()

    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")[-6000:]

    def verified(self) -> str:
        """What `lucius verify` says, with Temporal too where jobs run there; nothing, where all is well.

        A process that was killed between two requests leaves lists that are behind, until the wake-up of
        the job comes. So what is found must still be there later.
        """
        for _ in range(LOOKS):
            found = self._verify()
            if not found:
                return ""
            time.sleep(BETWEEN)
        return found

    def _verify(self) -> str:
        against = [[], ["--against", "temporal"]] if "temporal" in self.name else [[]]
        looks = [
            subprocess.run(
                [LUCIUS, "verify", *words],
                env=self.server.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            for words in against
        ]
        return "".join(look.stdout + look.stderr for look in looks if look.returncode != 0)

    def command(self, number: int, payload: dict[str, Any]) -> dict[str, Any]:
        return {
            "tenant_id": f"tenant-{number % 3}",
            "request_type": "->".join(STEPS),
            "input_ref": f"s3://bucket/{number}.pdf",
            "output_ref": f"{self.server.outputs.as_uri()}/{number}.json",
            "payload": {"steps": payload},
            "schema_version": "v1",
            "idempotency_key": f"e2e-{number}",
        }


@contextmanager
def running(
    name: str, folder: Path, services: Sequence[str] = SERVICES, **settings: str
) -> Iterator[Stack]:
    with _temporal(name) as found:
        stack = Stack(name, folder, services, **settings, **found)
        try:
            stack.start()
            yield stack
        finally:
            stack.close()


@contextmanager
def _temporal(name: str) -> Iterator[dict[str, str]]:
    """The settings that lead to a server of its own, where the stack does not start one itself."""
    if name != ON_TEMPORAL:
        yield {}
        return
    server = TemporalServer()
    server.start()
    try:
        server.wait()
        yield {
            "LUCIUS_TEMPORAL_ENABLED": "true",
            "LUCIUS_TEMPORAL_ADDRESS": server.address,
        }
    finally:
        server.remove()


def client_of(stack: Stack) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=stack.url, timeout=WAIT + 10)


async def submitted(client: httpx.AsyncClient, command: dict[str, Any]) -> str:
    answer = await client.post("/v1/orchestrate", json=command)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


async def ended(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    """Patient: a machine that runs other tests beside this stack is slow."""
    for _ in range(5):
        answer = await client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": WAIT})
        job: dict[str, Any] = answer.json()
        if job.get("completed_at"):
            return job
    raise AssertionError(job)


def pause(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
