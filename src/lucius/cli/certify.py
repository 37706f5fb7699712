"""`lucius certify`: whether a platform service keeps the contract."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.ledger import settings_for
from lucius.cli.processes import search_here
from lucius.cli.session import echo_json, run_in_order, with_json

if TYPE_CHECKING:
    from lucius.dev.certificate.certification import Grade, Starter
    from lucius.dev.certificate.checks import Check
    from lucius.dev.certificate.examinee import Examined, Folders, Samples


@click.command()
@click.argument("name", metavar="[MODULE:NAME]", required=False)
@click.option(
    "--command",
    metavar="COMMAND",
    help="Start this program instead; it pulls from LUCIUS_URL. Needs --service and --step-type.",
)
@click.option(
    "--listen",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Start nothing: wait on this port of loopback for a service that runs already.",
)
@click.option("--service", help="Name of the service, with --command or --listen.")
@click.option("--step-type", help="Which step type to examine.  [default: the service's first]")
@click.option(
    "--samples",
    "samples_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What the service is fed.  [default: certificate.yaml, if there is one]",
)
@click.option(
    "--check",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this check; may be given several times.",
)
@click.option("--list", "listed", is_flag=True, help="Print the checks and look at nothing.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a report for build servers to this file.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep inputs, outputs, workspaces and logs of the service here.  [default: nowhere]",
)
@with_json
def certify(
    name: str | None,
    command: str | None,
    listen: int | None,
    service: str | None,
    step_type: str | None,
    samples_file: Path | None,
    names: tuple[str, ...],
    listed: bool,
    junit: Path | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Check that a service keeps the contract.

    It starts the service against a small server of its own, in a temporary folder, hands out
    directives and looks at what comes back. Exits with 0 if no promise is broken.
    """
    from lucius.dev.certificate.examinee import Folders

    checks = chosen(names)
    if listed:
        show_checks(checks, as_json)
        return
    if sum(each is not None for each in (name, command, listen)) != 1:
        raise click.UsageError("give one of MODULE:NAME, --command and --listen")
    if junit is not None and not junit.parent.is_dir():
        raise click.BadParameter(f"there is no folder {junit.parent}", param_hint="--junit")
    samples = samples_of(samples_file)
    examined = examined_of(name, service, step_type, samples)
    with folder_of(folder) as place:
        folders = Folders(place)
        starter = starter_of(name, command, folders, samples)
        if listen is not None:
            click.echo("\n".join(invitation(listen, examined, folders)), err=True)
        begun = time.monotonic()
        findings = looked(examined, samples, folders, starter, checks, listen or 0, as_json)
        seconds = time.monotonic() - begun
    told(examined, findings, seconds, junit, as_json)


@contextmanager
def folder_of(given: Path | None) -> Iterator[Path]:
    """The user's, which is kept, or one that is not."""
    if given is not None:
        yield given.resolve()
        return
    with TemporaryDirectory(prefix="lucius-certify-") as made:
        yield Path(made).resolve()


def invitation(port: int, examined: "Examined", folders: "Folders") -> list[str]:
    """What somebody needs who starts the service."""
    from lucius.dev.certificate.certification import given

    settings = given(folders, f"http://127.0.0.1:{port}")
    return [
        f"Waiting for {examined.service}. Start it with these settings:",
        *(f"  {name}={value}" for name, value in settings.items()),
    ]


def chosen(names: tuple[str, ...]) -> "list[Check]":
    from lucius.dev.certificate.checks import CHECKS

    known = {check.name: check for check in CHECKS}
    for each in names:
        if each not in known:
            raise click.BadParameter(
                f"{each!r} is no check; `lucius certify --list` has them all", param_hint="--check"
            )
    return [check for check in CHECKS if not names or check.name in names]


def show_checks(checks: "list[Check]", as_json: bool) -> None:
    if as_json:
        echo_json([{"name": check.name, "promise": check.promise} for check in checks])
        return
    for check in checks:
        click.echo(f"{check.name:<30} {check.promise}")


def samples_of(file: Path | None) -> "Samples":
    from lucius.dev.certificate.examinee import FILE, Samples, read_samples

    if file is not None or Path(FILE).exists():
        return read_samples(file or Path(FILE))
    return Samples()


def examined_of(
    name: str | None, service: str | None, step_type: str | None, samples: "Samples"
) -> "Examined":
    from lucius.dev.certificate.examinee import Examined

    if name is None:
        if not service or not step_type:
            raise click.UsageError("--command and --listen need --service and --step-type")
        return Examined(service, step_type, samples.outputs is not False)
    from lucius.app.services import check_services, named_service

    search_here()
    found = named_service(name, settings_for(Path(".lucius")))
    check_services([found])
    if step_type is not None and step_type not in found.step_types:
        raise click.BadParameter(
            f"{step_type} is not executed by {name}: it says {', '.join(found.step_types)}",
            param_hint="--step-type",
        )
    outputs = found.commit if samples.outputs is None else samples.outputs
    return Examined(found.name, step_type or found.step_types[0], outputs)


def starter_of(
    name: str | None, command: str | None, folders: "Folders", samples: "Samples"
) -> "Starter":
    from lucius.dev.certificate.certification import CommandStarter, ElsewhereStarter, NamedStarter

    if name is not None:
        return NamedStarter(name, folders, samples.slow_seconds)
    return CommandStarter(command, folders) if command is not None else ElsewhereStarter()


def looked(
    examined: "Examined",
    samples: "Samples",
    folders: "Folders",
    starter: "Starter",
    checks: "list[Check]",
    port: int,
    as_json: bool,
) -> "list[Grade]":
    from lucius.dev.certificate.certification import Certification, line

    def tell(finding: "Grade") -> None:
        if not as_json:
            click.echo(line(finding))

    async def all_of_them() -> "list[Grade]":
        certification = Certification(examined, samples, folders, starter, port=port)
        return await certification.run(checks, tell)

    return run_in_order(all_of_them())


def told(
    examined: "Examined",
    findings: "list[Grade]",
    seconds: float,
    junit: Path | None,
    as_json: bool,
) -> None:
    from lucius.dev.certificate.certification import as_document, as_junit, explained, kept, summary

    if junit is not None:
        junit.write_text(as_junit(examined, findings, seconds), "utf-8")
    if as_json:
        echo_json(as_document(examined, findings, seconds))
    else:
        for text in explained(findings):
            click.echo(f"\n{text}")
        click.echo(f"\n{examined.service}: {summary(findings, seconds)}")
    context: Any = click.get_current_context()
    context.exit(0 if kept(findings) else 1)
