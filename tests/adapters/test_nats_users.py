"""Who is let in by a real NATS server: with a credentials file, a password or a token, and who is not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lucius.app.adapters import UnsupportedError, open_bus
from lucius.app.settings import load_settings
from lucius.core.errors import BusUnavailableError
from tests.adapters.test_nats_tls import carried
from tests.nats_operator import Operator
from tests.nats_server import NatsServer

SECRET = "geheim-and-long-enough"


@contextmanager
def serving(*options: str) -> Iterator[NatsServer]:
    server = NatsServer(*options)
    server.start()
    try:
        yield server
    finally:
        server.remove()


@contextmanager
def in_operator_mode(folder: Path) -> Iterator[tuple[Operator, NatsServer]]:
    operator, configuration = Operator(), folder / "server.conf"
    configuration.write_text(operator.configuration())
    with serving("-c", str(configuration)) as server:
        yield operator, server


async def test_a_process_is_let_in_with_a_credentials_file(tmp_path: Path) -> None:
    with in_operator_mode(tmp_path) as (operator, server):
        mine = tmp_path / "mine.creds"
        operator.write_credentials(mine)
        assert await carried(server, NATS_CREDENTIALS=str(mine)) == ["m1"]
        Operator().write_credentials(mine)
        with pytest.raises(BusUnavailableError, match="LUCIUS_NATS_CREDENTIALS"):
            await carried(server, NATS_CREDENTIALS=str(mine))
        with pytest.raises(BusUnavailableError, match="LUCIUS_NATS_CREDENTIALS"):
            await carried(server)


async def test_a_new_credentials_file_is_used_without_a_restart(tmp_path: Path) -> None:
    with in_operator_mode(tmp_path) as (operator, server):
        mine = tmp_path / "mine.creds"
        Operator().write_credentials(mine)
        given = {"BUS_BACKEND": "nats", "NATS_URL": server.url, "NATS_CREDENTIALS": str(mine)}
        bus = open_bus(load_settings({f"LUCIUS_{k}": v for k, v in given.items()}))
        with pytest.raises(BusUnavailableError):
            await bus.ensure([])
        mine.unlink()
        with pytest.raises(BusUnavailableError, match=r"mine\.creds"):
            await bus.ensure([])
        operator.write_credentials(mine)
        await bus.ensure([])
        await bus.close()


async def test_what_the_user_may_not_do_is_named(tmp_path: Path) -> None:
    with in_operator_mode(tmp_path) as (operator, server):
        mine = tmp_path / "mine.creds"
        operator.write_credentials(mine, pub={"deny": ["$JS.API.STREAM.>"]})
        with pytest.raises(BusUnavailableError, match=r"(?i)permissions violation.*JS\.API"):
            await carried(server, NATS_CREDENTIALS=str(mine))


async def test_the_rights_that_the_page_lists_are_enough(tmp_path: Path) -> None:
    with in_operator_mode(tmp_path) as (operator, server):
        mine, rows = tmp_path / "mine.creds", "$KV.narrow-subscriptions.>"
        published = ["narrow.bus.>", "narrow.dead.>", rows, "$JS.API.>", "$JS.ACK.>"]
        operator.write_credentials(
            mine, pub={"allow": published}, sub={"allow": ["_INBOX.>", rows]}
        )
        assert await carried(server, NATS_CREDENTIALS=str(mine), SYSTEM="narrow") == ["m1"]


def named(server: NatsServer) -> str:
    return server.url.replace("//", "//lucius@")


async def test_a_process_is_let_in_with_a_password() -> None:
    with serving("--user", "lucius", "--pass", SECRET) as server:
        assert await carried(server, NATS_URL=named(server), NATS_PASSWORD=SECRET) == ["m1"]
        with pytest.raises(BusUnavailableError, match="LUCIUS_NATS_PASSWORD"):
            await carried(server, NATS_URL=named(server), NATS_PASSWORD="other")


async def test_a_process_is_let_in_with_a_token() -> None:
    with serving("--auth", SECRET) as server:
        assert await carried(server, NATS_PASSWORD=SECRET) == ["m1"]
        with pytest.raises(BusUnavailableError, match="LUCIUS_NATS_PASSWORD"):
            await carried(server, NATS_PASSWORD="other")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"NATS_URL": "nats://lucius@localhost"}, "LUCIUS_NATS_PASSWORD"),
        ({"NATS_URL": "nats://a@one,nats://b@two", "NATS_PASSWORD": SECRET}, "several users"),
        ({"NATS_PASSWORD": SECRET, "NATS_CREDENTIALS": "a.creds"}, "set one of them"),
        ({"NATS_CREDENTIALS": "nowhere.creds"}, r"nowhere\.creds"),
        ({"NATS_CREDENTIALS": __file__}, "no block NATS USER JWT"),
    ],
    ids=["no password", "two users", "two ways", "no file", "another file"],
)
def test_settings_that_do_not_fit_are_named_at_the_start(
    settings: dict[str, str], said: str
) -> None:
    given = {"BUS_BACKEND": "nats", **settings}
    with pytest.raises(UnsupportedError, match=said) as raised:
        open_bus(load_settings({f"LUCIUS_{k}": v for k, v in given.items()}))
    assert SECRET not in str(raised.value)
