"""Nothing listens where others can reach it while everyone may do everything."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from lucius.app.processes import (
    NoPublicUrlError,
    UnsafeAddressError,
    check_address,
    check_callable,
    check_shared,
    is_loopback,
    serve,
)
from lucius.app.settings import load_settings
from lucius.cli.main import main
from tests.cli.up import up

REACHABLE = [
    "0.0.0.0",
    "::",
    "",
    "192.168.0.1",
    "10.0.0.1",
    "203.0.113.7",
    "fe80::1",
    "::ffff:0.0.0.0",
]
REACHABLE += ["lucius.test", "localhost.test", "127.0.0.1.nip.io", "0", "*"]
LOOPBACK = ["127.0.0.1", "127.0.0.2", "::1", "localhost"]


@pytest.mark.parametrize("host", REACHABLE)
async def test_without_authentication_only_loopback_is_listened_on(
    host: str, tmp_path: Path
) -> None:
    settings = load_settings({"LUCIUS_DATA_DIR": str(tmp_path / "data")})
    with pytest.raises(UnsafeAddressError, match="LUCIUS_AUTH"):
        await serve(settings, host=host, port=0, services=())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("host", REACHABLE + LOOPBACK)
def test_with_authentication_every_address_will_do(host: str) -> None:
    check_address(load_settings({"LUCIUS_AUTH": "keys"}), host)
    assert is_loopback(host) is (host in LOOPBACK)


@pytest.mark.parametrize("verb", ["up", "orchestrator"])
@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "lucius.test"])
def test_what_listens_says_why_it_does_not_start(verb: str, host: str, tmp_path: Path) -> None:
    env = {"LUCIUS_DATA_DIR": str(tmp_path / "data"), "LUCIUS_AUTH": "none"}
    result = CliRunner().invoke(main, [verb, "--host", host, "--port", "0"], env=env)
    assert result.exit_code == 1
    assert "authentication is off" in result.stderr
    assert isinstance(result.exception, SystemExit)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "", "0", "::", "::ffff:0.0.0.0"])
async def test_on_every_interface_workers_must_be_told_where_to_call_back(
    host: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    settings = load_settings({"LUCIUS_DATA_DIR": str(data), "LUCIUS_AUTH": "keys"})
    with pytest.raises(NoPublicUrlError, match="LUCIUS_PUBLIC_URL"):
        await serve(settings, host=host, port=0, services=())
    assert not data.exists()


def test_an_address_of_one_interface_is_one_to_call_back() -> None:
    for bound in ("127.0.0.1", "192.168.0.1", "fe80::1%eth0", "::1"):
        check_callable("http://x", bound)


def test_with_a_public_url_it_listens_everywhere(tmp_path: Path) -> None:
    env = {"LUCIUS_AUTH": "keys", "LUCIUS_PUBLIC_URL": "https://lucius.example"}
    with up(tmp_path, "--host", "0.0.0.0", **env):
        pass


@pytest.mark.parametrize(
    ("verb", "env", "named"),
    [
        ("orchestrator", {}, {"LUCIUS_STORAGE_BACKEND=sqlite", "LUCIUS_BUS_BACKEND=memory"}),
        ("orchestrator", {"LUCIUS_AUTH": "keys"}, {"LUCIUS_STORAGE_BACKEND=sqlite"}),
        ("reconciler", {}, {"LUCIUS_STORAGE_BACKEND=sqlite", "LUCIUS_BUS_BACKEND=memory"}),
        ("reconciler", {"LUCIUS_BUS_BACKEND": "nats"}, {"LUCIUS_STORAGE_BACKEND=sqlite"}),
        ("reconciler", {"LUCIUS_STORAGE_BACKEND": "memory"}, {"LUCIUS_STORAGE_BACKEND=memory"}),
    ],
)
def test_parts_are_refused_by_name_while_nothing_is_shared(
    verb: str, env: dict[str, str], named: set[str], tmp_path: Path
) -> None:
    env = {"LUCIUS_DATA_DIR": str(tmp_path / "data"), **env}
    result = CliRunner().invoke(main, [verb], env=env)
    assert result.exit_code == 2
    assert all(name in result.stderr for name in {*named, "lucius up"})
    assert not (tmp_path / "data").exists()


SHARED = {
    "LUCIUS_STORAGE_BACKEND": "ledger",
    "LUCIUS_TABLE_CONNECTION": "x",
    "LUCIUS_BUS_BACKEND": "nats",
}


@pytest.mark.parametrize("verb", ["orchestrator", "reconciler"])
def test_backends_that_processes_share_only_have_to_be_there(verb: str, tmp_path: Path) -> None:
    check_shared(load_settings(SHARED), verb)
    words = [verb, "--port", "0"] if verb == "orchestrator" else [verb]
    result = CliRunner().invoke(main, words, env={"LUCIUS_DATA_DIR": str(tmp_path), **SHARED})
    assert result.exit_code == 1
    assert "LUCIUS_CALLBACK_KEYS and LUCIUS_WEBHOOK_SECRET" in result.stderr, (
        "they share those, too"
    )
