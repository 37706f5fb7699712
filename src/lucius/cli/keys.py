"""`lucius keys`: API keys for LUCIUS_AUTH=keys, and the secrets with which tenants verify webhooks."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lucius.cli.ledger import Age, settings_of_command, with_data
from lucius.cli.screen import printed
from lucius.cli.session import console, echo_json, run, with_json

if TYPE_CHECKING:
    from lucius.ports.keys import ApiKey, KeyStore

T = TypeVar("T")
ROLES: Final = ("submit", "read", "operate", "service", "admin", "monitor")
_ROLES_HELP: Final = """\b
Roles:
  submit   post commands
  read     read jobs, events, lists and protocols
  operate  cancel, pause, resume and redrive jobs; the dead-letter view
  service  pull directives and answer them over HTTP
  admin    the backlog and the outbox
  monitor  the metrics, and the backlog of one service: for Prometheus and KEDA
"""


@click.group()
def keys() -> None:
    """Create, list and revoke API keys.

    A server with LUCIUS_AUTH=keys asks its callers for one. Only the hashes of keys are kept: in
    LUCIUS_DATA_DIR, or in the ledger where processes share it. A running server notices a new key
    at once, and a revoked one at once or, where the ledger is shared, within five seconds.
    """


@keys.command(epilog=_ROLES_HELP)
@click.argument("name")
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    required=True,
    help="What the key may do; may be given several times.",
)
@click.option(
    "--tenant",
    "tenants",
    multiple=True,
    metavar="TENANT",
    help="A tenant that the key may act for; may be given several times.",
)
@click.option("--all-tenants", is_flag=True, help="The key may act for every tenant.")
@click.option(
    "--expires-in",
    type=Age(),
    metavar="AGE",
    help="How long the key is valid, such as 12h or 90d.  [default: for ever]",
)
@with_data
@with_json
def create(
    name: str,
    roles: tuple[str, ...],
    tenants: tuple[str, ...],
    all_tenants: bool,
    expires_in: timedelta | None,
    data: Path,
    as_json: bool,
) -> None:
    """Create a key for NAME and show it, this one time."""
    from lucius.http.context import Role
    from lucius.http.keys import new_key

    if all_tenants == bool(tenants):
        raise click.UsageError("give either --tenant, once for each, or --all-tenants")
    now, bound = datetime.now(UTC), None if all_tenants else tenants
    expires_at = now + expires_in if expires_in is not None else None
    record, key = new_key(name, tuple(Role(role) for role in roles), bound, now, expires_at)
    _on_store(data, lambda store: store.add(record))
    if as_json:
        echo_json({**_row(record), "key": key})
        return
    click.echo(key)
    click.echo(
        f"This is key {record.key_id} of {printed(name)}. Keep it: it is not shown again.", err=True
    )


@keys.command("list")
@with_data
@with_json
def listed(data: Path, as_json: bool) -> None:
    """List the keys, without their secrets."""
    rows = [_row(key) for key in _on_store(data, lambda store: store.keys())]
    if as_json:
        echo_json({"keys": rows})
    else:
        _show(rows)


@keys.command()
@click.argument("key_id", metavar="KEY_ID")
@with_data
@with_json
def revoke(key_id: str, data: Path, as_json: bool) -> None:
    """Revoke the key KEY_ID. It stops working at once.

    Where processes share the ledger, all of them know it within five seconds. `lucius keys list`
    shows the ids.
    """
    key = _on_store(data, lambda store: store.revoke(key_id, datetime.now(UTC)))
    if key is None:
        raise click.ClickException(f"there is no key {key_id}: `lucius keys list` shows the ids")
    if as_json:
        echo_json(_row(key))
    else:
        click.echo(f"{printed(key_id)} of {printed(key.name)} is revoked")


@keys.command()
@click.argument("tenant")
@with_data
@with_json
def webhook(tenant: str, data: Path, as_json: bool) -> None:
    """Show the secret with which TENANT verifies its webhooks."""
    from lucius.app.secrets import webhook_secret
    from lucius.operations.webhooks import tenant_secrets

    secrets = tenant_secrets(webhook_secret(settings_of_command(data)), tenant)
    if as_json:
        echo_json({"tenant_id": tenant, "secrets": secrets})
    else:
        click.echo("\n".join(secrets))


def _on_store(data: Path, act: "Callable[[KeyStore], Awaitable[T]]") -> T:
    from lucius.app.access import key_store

    settings = settings_of_command(data)

    async def done() -> T:
        async with key_store(settings) as store:
            return await act(store)

    return run(done())


def _row(key: "ApiKey") -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "name": key.name,
        "roles": list(key.roles),
        "tenants": list(key.tenants) if key.tenants is not None else None,
        "state": key.state(datetime.now(UTC)),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("key", "name", "state", "roles", "tenants", "created", "expires"):
        table.add_column(name)
    for row in printed(rows):
        tenants = "all" if row["tenants"] is None else ", ".join(row["tenants"])
        cells = [row["key_id"], row["name"], row["state"], ", ".join(row["roles"]), tenants]
        table.add_row(*map(escape, (*cells, row["created_at"], row["expires_at"] or "never")))
    console().print(table)
