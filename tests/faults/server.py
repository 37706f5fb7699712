"""A real `lucius up` as a child process, to be killed and started again on the same data."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import yaml

from lucius.app.lifecycle import free_port

REPOSITORY = Path(__file__).parents[2]
LUCIUS = str(Path(sys.executable).parent / "lucius")
STEPS = ("ALPHA", "BETA", "GAMMA")
PROTOCOLS = {
    "step_types": {name: {"service": name.lower()} for name in STEPS},
    "protocols": [
        {"request_type": "->".join(STEPS), "protocol_id": "kill_v1", "steps": list(STEPS)}
    ],
}
QUICK = {
    "LUCIUS_DISPATCH_BACKOFF_SECONDS": "0.2",
    "LUCIUS_ACK_BACKOFF_SECONDS": "0.2",
    "LUCIUS_EXECUTION_BACKOFF_SECONDS": "0.2",
    "LUCIUS_ACK_TIMEOUT_SECONDS": "20",
    "LUCIUS_MAX_INFLIGHT_PER_TENANT": "none",
}


class Server:
    """One data directory and one port, whatever number of processes come and go on them."""

    def __init__(self, data: Path, **settings: str) -> None:
        self.data = data
        self.outputs = data.parent / "outputs"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = (data.parent / "server.log").open("ab")
        protocols = data.parent / "protocols.yaml"
        protocols.write_text(yaml.safe_dump(PROTOCOLS))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LUCIUS_")}
        self.environment = {
            **environment,
            **QUICK,
            **settings,
            "LUCIUS_PROTOCOLS": str(protocols),
            "LUCIUS_DATA_DIR": str(data),
            "LUCIUS_OUTPUT_ROOTS": str(self.outputs),
        }

    def start(self) -> None:
        names = [f"tests.faults.kill_services:{name.lower()}" for name in STEPS]
        services = [word for name in names for word in ("--service", name)]
        command = [LUCIUS, "up", "--port", str(self.port), "--no-services", *services]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, env=self.environment, stdout=self._log, stderr=self._log
        )

    def kill(self) -> None:
        assert self._process is not None, "the server was started"
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def suspend(self) -> None:
        assert self._process is not None, "the server was started"
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None, "the server was started"
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        assert self._process is not None, "the server was started"
        self._process.terminate()
        return self._process.wait(90)

    def close(self) -> None:
        if self.alive():
            self.kill()
        self._log.close()

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return Path(self._log.name).read_text()[-4000:]

    def verify(self) -> subprocess.CompletedProcess[str]:
        command = [LUCIUS, "verify", "--json"]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )


def command(number: int, payload: dict[str, Any], server: Server) -> dict[str, Any]:
    return {
        "tenant_id": f"tenant-{number % 3}",
        "request_type": "->".join(STEPS),
        "input_ref": f"s3://bucket/{number}.pdf",
        "output_ref": f"{server.outputs.as_uri()}/{number}.json",
        "payload": {"steps": payload},
        "schema_version": "v1",
        "idempotency_key": f"kill-{number}",
    }


async def ready(client: httpx.AsyncClient, server: Server) -> None:
    """Ask until the server answers; a server that has ended says why."""
    while True:
        try:
            if (await client.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            assert server.alive(), server.log()
