"""A real Azurite for tests: Azure Tables and Blob on free ports of loopback, in memory."""

import atexit
import functools
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from lucius.app.azure_stack import ACCOUNT, azurite_command, azurite_options
from lucius.app.lifecycle import free_port
from lucius.app.stacks import PartMissingError, die_with_parent

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, from its documentation: it opens nothing but an Azurite that was given no other."""
UNCHECKED = ssl._create_unverified_context()
PATIENCE = 60
"""Seconds within which it answers, on a busy machine too."""


class Azurite:
    """`certificate`: with its key, for TLS, which Azurite asks for before it takes tokens of identities."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        blob, queue, self.table_port = (free_port() for _ in range(3))
        self.blob_port = blob
        try:
            command = azurite_command()
        except PartMissingError as error:
            raise AssertionError(f"{error}; `make test` does so itself") from None
        options = azurite_options(None, blob, queue, self.table_port)
        self._scheme = "http" if certificate is None else "https"
        if certificate is not None:
            cert, key = map(str, certificate)
            options += ["--oauth", "basic", "--cert", cert, "--key", key]
        self._process = subprocess.Popen([*command, *options], preexec_fn=die_with_parent)
        self._wait()

    def _wait(self) -> None:
        give_up_at = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < give_up_at:
            try:
                url = f"{self._scheme}://127.0.0.1:{self.table_port}/"
                urllib.request.urlopen(url, timeout=5, context=UNCHECKED).close()
            except urllib.error.HTTPError:
                return  # it answers, though not to strangers
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.stop()
        raise AssertionError(f"Azurite does not answer within {PATIENCE} s")

    @property
    def table_connection(self) -> str:
        endpoint = f"{self._scheme}://127.0.0.1:{self.table_port}/{ACCOUNT}"
        return (
            f"DefaultEndpointsProtocol={self._scheme};AccountName={ACCOUNT};AccountKey={KEY};"
            f"TableEndpoint={endpoint};"
        )

    @property
    def blob_connection(self) -> str:
        endpoint = f"{self._scheme}://127.0.0.1:{self.blob_port}/{ACCOUNT}"
        return (
            f"DefaultEndpointsProtocol={self._scheme};AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint={endpoint};"
        )

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@functools.cache
def shared_azurite() -> Azurite:
    """One for all tests of a process; each uses tables of its own."""
    server = Azurite()
    atexit.register(server.stop)
    return server
