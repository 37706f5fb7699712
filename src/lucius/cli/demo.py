"""`lucius demo`: a server of its own, one document through three steps, and the answer."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.screen import printed, reference_text
from lucius.cli.session import Session, echo_json, with_json
from lucius.cli.submit import SCHEMA_VERSION
from lucius.cli.watching import exit_code, watch_job
from lucius.core.printable import printable_json, printable_lines

if TYPE_CHECKING:
    import subprocess

    from lucius.client import Client
    from lucius.contract.shapes import JobShape

PROMPTS = (
    "How much does the Harbour Board pay a year?",
    "What happens if the light fails?",
    "When does the agreement begin?",
)
READY_SECONDS = 30.0


@click.command()
@click.option(
    "--document",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default="examples/sample.pdf",
    show_default=True,
    help="The document to read.",
)
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    default=PROMPTS,
    help="A question about the document; may be given several times.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=".lucius/demo",
    show_default=True,
    help="Directory for the demo's own server and its output.",
)
@with_json
def demo(document: Path, prompts: tuple[str, ...], data: Path, as_json: bool) -> None:
    """Ask questions about a sample document and show the answers.

    A server of its own runs the steps OCR, EMBEDDING and SIS, and ends with the command.
    """
    data.mkdir(parents=True, exist_ok=True)
    with _server(data, document) as url:
        envelope = _envelope(document, prompts, data)
        job = Session(url, as_json=True).call(lambda client: _run(client, envelope, quiet=as_json))
    if as_json:
        echo_json({"job": job, "output": output_of(job)})
    else:
        _show(job)
    click.get_current_context().exit(exit_code(job))


def _envelope(document: Path, prompts: tuple[str, ...], data: Path) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "tenant_id": "demo",
        "request_type": "OCR->EMBEDDING->SIS",
        "input_ref": {"uri": document.resolve().as_uri()},
        "output_ref": {"uri": (data / "output" / "result.json").resolve().as_uri()},
        "overwrite": True,
        "payload": {"steps": {"ocr": {}, "embedding": {}, "sis": {"prompt_set": list(prompts)}}},
    }


async def _run(client: "Client", envelope: dict[str, Any], *, quiet: bool) -> "JobShape":
    """A key of its own makes every run a new job."""
    submitted = await client.submit(envelope, idempotency_key=f"demo-{time.time_ns()}")
    if not quiet:
        click.echo(f"submitted {envelope['input_ref']['uri']} as {submitted['jobId']}")
    return await watch_job(client, submitted["jobId"], quiet=quiet)


@contextmanager
def _server(data: Path, document: Path) -> Iterator[str]:
    """`lucius up` as a child on a free port, for this document; its log is in the data directory."""
    import os
    import subprocess

    url, log = f"http://127.0.0.1:{_free_port()}", data / "server.log"
    port = url.rpartition(":")[2]
    own = str(data / "server")  # beside the output: no job may write where the server keeps its own
    command = [sys.executable, "-P", "-m", "lucius.cli.main", "up", "--port", port, "--data", own]
    plain = {name: text for name, text in os.environ.items() if not name.startswith("LUCIUS_")}
    roots = {
        "LUCIUS_INPUT_ROOTS": str(document.resolve().parent),
        "LUCIUS_OUTPUT_ROOTS": str((data / "output").resolve()),
    }
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**plain, **roots}
        )
    try:
        _await_ready(child, url, log)
        yield url
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_ready(child: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    from urllib.error import URLError
    from urllib.request import urlopen

    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise click.ClickException(f"the server ended:\n{log.read_text(errors='replace')}")
        try:
            with urlopen(f"{url}/readyz", timeout=1):
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise click.ClickException(f"the server is not ready after {READY_SECONDS:g} s; see {log}")


def output_of(job: "JobShape") -> Any:
    """The content behind `final_output`, where it is a local JSON file; else the reference."""
    from urllib.parse import unquote, urlsplit

    uri = reference_text(job["final_output"])
    path = Path(unquote(urlsplit(uri).path)) if uri.startswith("file:") else None
    if path is None or not path.is_file():
        return uri
    text = path.read_text("utf-8")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _show(job: "JobShape") -> None:
    from rich.console import Console

    output, job = output_of(job), printed(job)
    if job["state"] != "SUCCEEDED":
        click.echo(f"{job['jobId']} {job['state']}: {job['explanation']}", err=True)
        return
    out = Console()
    where = f"\nfinal output  {reference_text(job['final_output'])}"
    out.print(where, markup=False, soft_wrap=True)
    if isinstance(output, str):
        out.print(printable_lines(output), markup=False)
    else:
        text = json.dumps(output, indent=2, ensure_ascii=False)
        out.print(printable_json(text), markup=False, soft_wrap=True)
