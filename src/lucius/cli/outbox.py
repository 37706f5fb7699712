"""`lucius outbox retry`: publish pending directives now."""

from typing import Any

import click

from lucius.cli.session import Session, with_server


@click.group()
def outbox() -> None:
    """Publish directives that wait."""


@outbox.command()
@with_server
def retry(session: Session) -> None:
    """Publish pending directives now, before their backoff is over."""
    session.show(session.call(lambda client: client.retry_outbox()), _show)


def _show(counts: dict[str, Any]) -> None:
    click.echo(
        f"{counts['published']} published, {counts['pending']} pending, {counts['failed']} failed"
    )
