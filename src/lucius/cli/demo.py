"""`lucius demo`: a server of its own, documents through three steps, and the answers with their pages."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lucius.cli.screen import printed, reference_text
from lucius.cli.session import Session, echo_json, with_json
from lucius.cli.submit import SCHEMA_VERSION
from lucius.cli.watching import exit_code, watch_bar, watch_job
from lucius.core.text import printable
from lucius.system.machine import private_folder, python_command

if TYPE_CHECKING:
    import subprocess

    from lucius.client.plain import PlainClient

ASKED: Final = {
    "scan.pdf": (
        "How long is the crack in the lens?",
        "What will the repair of the lens cost?",
        "When must the repair be finished?",
    ),
    "sample.pdf": (
        "How much does the Harbour Board pay a year?",
        "What happens if the light fails?",
        "When does the agreement begin?",
    ),
}
"""What is asked of the documents that come with the package; the first one is a scan."""
EXAMPLES: Final = Path("examples")
"""Where they are written, so that the commands of the README and the tutorial find them."""
NAME_WIDTH: Final = max(map(len, ASKED))
"""So that the bars of the documents stand below each other."""
READY_SECONDS: Final = 60.0
NEXT: Final = """
What to try next:
  lucius up                                                    a server of your own; the console is at http://127.0.0.1:8700
  lucius submit --type OCR --input examples/sample.pdf --wait  a job, in another terminal
  lucius job show last                                         what became of it, attempt by attempt"""


@dataclass(frozen=True, slots=True)
class Run:
    """One document, from its questions to its answers."""

    document: str
    job: dict[str, Any]
    output: Any


@click.command()
@click.option(
    "--document",
    "documents",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A document to read; may be given several times.  [default: two written to examples/]",
)
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    help="A question about the documents; may be given several times.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=".lucius/demo",
    show_default=True,
    help="Directory for the demo's own server and its output.",
)
@with_json
def demo(documents: tuple[Path, ...], prompts: tuple[str, ...], data: Path, as_json: bool) -> None:
    """Ask questions about two documents and show the answers.

    One is a scan, the other has text. Each answer comes with its page. A server of its own runs
    the steps OCR, EMBEDDING and SIS, and ends with the command.
    """
    from lucius.app.services import packaged_services
    from lucius.app.settings import load_settings

    packaged_services(load_settings({}))  # says what is missing, before anything starts
    unknown = next((each for each in documents if each.name not in ASKED), None)
    if unknown is not None and not prompts:
        raise click.UsageError(f"say with --prompt what to ask of {printable(str(unknown))}")
    private_folder(data)
    documents = documents or _examples()
    if not as_json:
        click.echo("A server with the services OCR, EMBEDDING and SIS starts ...")
    with _server(data, documents) as url:
        session = Session(url, as_json=True)
        runs = [_run(session, each, prompts, data, quiet=as_json) for each in documents]
    if as_json:
        echo_json({"runs": [asdict(run) for run in runs]})
    else:
        for run in runs:
            _show(run)
        click.echo(NEXT)
    click.get_current_context().exit(max(exit_code(run.job) for run in runs))


def _examples() -> tuple[Path, ...]:
    """The documents of the package, written where they are not there already."""
    EXAMPLES.mkdir(exist_ok=True)
    for name in ASKED:
        with suppress(FileExistsError), (EXAMPLES / name).open("xb") as out:
            out.write((Path(__file__).parent / EXAMPLES / name).read_bytes())
    return tuple(EXAMPLES / name for name in ASKED)


def _run(
    session: Session, document: Path, prompts: tuple[str, ...], data: Path, *, quiet: bool
) -> Run:
    asked = prompts or ASKED[document.name]
    envelope = _envelope(document, asked, data)
    job = session.call(lambda client: _ended(client, envelope, document.name, quiet=quiet))
    return Run(str(document), job, output_of(job))


def _envelope(document: Path, prompts: tuple[str, ...], data: Path) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "tenant_id": "demo",
        "request_type": "OCR->EMBEDDING->SIS",
        "input_ref": {"uri": document.resolve().as_uri()},
        "output_ref": {"uri": (data / "output" / f"{document.name}.json").resolve().as_uri()},
        "overwrite": True,
        "payload": {"steps": {"ocr": {}, "embedding": {}, "sis": {"prompt_set": list(prompts)}}},
    }


async def _ended(
    client: "PlainClient", envelope: dict[str, Any], name: str, *, quiet: bool
) -> dict[str, Any]:
    """A key of its own makes every run a new job."""
    submitted = await client.submit(envelope, idempotency_key=f"demo-{time.time_ns()}")
    if quiet or not sys.stdout.isatty():
        if not quiet:
            click.echo(f"submitted {envelope['input_ref']['uri']} as {submitted['jobId']}")
        return await watch_job(client, submitted["jobId"], quiet=quiet)
    return await watch_bar(client, submitted["jobId"], f"{name:<{NAME_WIDTH}}")


@contextmanager
def _server(data: Path, documents: Sequence[Path]) -> Iterator[str]:
    """`lucius up` as a child on a free port, for these documents; its log is in the data directory."""
    import os
    import subprocess

    from lucius.app.lifecycle import free_port

    url, log = f"http://127.0.0.1:{free_port()}", data / "server.log"
    port = url.rpartition(":")[2]
    own = str(data / "server")  # beside the output: no job may write where the server keeps its own
    command = python_command("lucius.cli.main", "up", "--port", port, "--data", own)
    plain = {name: text for name, text in os.environ.items() if not name.startswith("LUCIUS_")}
    roots = {
        "LUCIUS_INPUT_ROOTS": ",".join({str(each.resolve().parent) for each in documents}),
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


def output_of(job: dict[str, Any]) -> Any:
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


def _show(run: Run) -> None:
    output, job = run.output, printed(run.job)
    click.secho(f"\n{printable(run.document)}", bold=True)
    if job["state"] != "SUCCEEDED":
        click.echo(f"{job['jobId']} {job['state']}: {job['explanation']}", err=True)
        return
    for answer in output["answers"] if isinstance(output, dict) else ():
        click.echo("\n".join(answer_lines(printed(answer))))
    click.echo(f"\n  all of it  {reference_text(job['final_output'])}")


def answer_lines(answer: dict[str, Any]) -> list[str]:
    said = answer["answer"]
    source = f"page {answer['page']}, passage {answer['passage']}" if said else "-"
    rows = {
        "question": answer["prompt"],
        "answer": said or "the document does not say",
        "source": source,
    }
    return [
        "",
        *(f"  {click.style(f'{name:>9}', dim=True)}  {text}" for name, text in rows.items()),
    ]
