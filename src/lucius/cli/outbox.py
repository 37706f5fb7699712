"""`lucius outbox retry`: publish what is pending now."""

from typing import TYPE_CHECKING

import click

from lucius.cli.session import Session, with_server

if TYPE_CHECKING:
    from lucius.contract.shapes import RetriedShape


@click.group()
def outbox() -> None:
    """Directives on their way to the bus."""


@outbox.command()
@with_server
def retry(session: Session) -> None:
    """Publish what is pending now, without waiting for its backoff."""
    session.show(session.call(lambda client: client.retry_outbox()), _show)


def _show(counts: "RetriedShape") -> None:
    click.echo(
        f"{counts['published']} published, {counts['pending']} pending, {counts['failed']} failed"
    )
