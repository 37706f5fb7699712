"""API keys: hashed at rest, shown once, gone at once; several writers lose nothing."""

import asyncio
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lucius.cli.keys import ROLES
from lucius.cli.main import main
from lucius.http.access import KeyAccess
from lucius.http.context import Role
from lucius.http.keys import KeyFile, KeyFileError, KeyRefusedError
from tests.api.world import World, client_of, context_of

READ = (Role.READ,)
NOW = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def lucius(tmp_path: Path) -> Callable[..., Result]:
    def run(*args: str) -> Result:
        env = {"LUCIUS_DATA_DIR": str(tmp_path), "COLUMNS": "200"}
        return CliRunner().invoke(main, ["keys", *args], env=env)

    return run


# -- the file ------------------------------------------------------------------------------------


def test_a_key_speaks_for_its_roles_and_tenants(path: Path) -> None:
    _, key = KeyFile(path).create("ci", (Role.SUBMIT, Role.READ), ("tenant_a", "tenant_a"))
    caller = KeyFile(path).caller_of(key)
    assert caller is not None
    assert (caller.name, caller.tenants) == ("ci", frozenset({"tenant_a"}))
    assert caller.roles == {Role.SUBMIT, Role.READ}


def test_the_file_holds_no_secret_and_only_its_owner_reads_it(path: Path) -> None:
    record, key = KeyFile(path).create("ci", READ, None)
    assert key.split("_", 2)[2] not in path.read_text()
    assert record.secret_sha256 in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir() if each.stat().st_mode & 0o077] == []


def test_a_revoked_key_stops_at_once_for_those_who_have_read_it(path: Path) -> None:
    reader, writer = KeyFile(path), KeyFile(path)
    record, key = writer.create("ci", READ, None)
    assert reader.caller_of(key) is not None
    revoked = writer.revoke(record.key_id)
    assert reader.caller_of(key) is None
    assert writer.revoke(record.key_id) == revoked
    assert writer.revoke("nobody") is None


def test_a_key_expires(path: Path) -> None:
    now = NOW
    keys = KeyFile(path, lambda: now)
    _, key = keys.create("ci", READ, None, NOW + timedelta(days=1))
    assert keys.caller_of(key) is not None
    now += timedelta(days=1)
    assert keys.caller_of(key) is None


@pytest.mark.parametrize("cut", [0, 2, 3, 15, 16, -1])
def test_part_of_a_key_opens_nothing(path: Path, cut: int) -> None:
    keys = KeyFile(path)
    _, key = keys.create("ci", READ, None)
    assert keys.caller_of(key[:cut]) is None


@pytest.mark.parametrize("text", ["", "lk_", "lk__", "x_y_z", "lk_é_é", "lk_a_\udcff", "_" * 99])
def test_what_is_no_key_opens_nothing(path: Path, text: str) -> None:
    keys = KeyFile(path)
    keys.create("ci", READ, None)
    assert keys.caller_of(text) is None


def test_writers_at_once_lose_no_key(path: Path) -> None:
    def make(number: int) -> str:
        return KeyFile(path).create(f"ci-{number}", READ, None)[0].key_id

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(32)))
    assert {key.key_id for key in KeyFile(path).list()} == set(made)


@pytest.mark.parametrize(
    ("name", "roles", "tenants"),
    [
        ("", READ, None),
        ("a\nb", READ, None),
        ("x" * 129, READ, None),
        ("ci", (), None),
        ("ci", READ, ()),
        ("ci", READ, ("",)),
        ("ci", READ, ("a\x00",)),
    ],
)
def test_a_key_that_means_nothing_is_not_made(
    path: Path, name: str, roles: tuple[Role, ...], tenants: tuple[str, ...] | None
) -> None:
    with pytest.raises(KeyRefusedError):
        KeyFile(path).create(name, roles, tenants)
    assert not path.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"tenants": "tenant_a"},
        {"tenants": {"tenant_a": True}},
        {"roles": "admin"},
        {"roles": ["emperor"]},
        {"expires_at": "2026-01-27"},
        {"expires_at": 7},
    ],
    ids=str,
)
def test_a_file_that_is_not_understood_opens_nothing(path: Path, change: dict[str, Any]) -> None:
    _, key = KeyFile(path).create("ci", READ, ("tenant_a",))
    document = json.loads(path.read_text())
    document["keys"][0] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(KeyFileError):
        KeyFile(path).caller_of(key)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o666], ids=oct)
async def test_a_file_that_others_can_open_is_not_trusted_any_more(
    path: Path, world: World, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    keys = KeyFile(path)
    _, key = keys.create("ci", READ, None)
    checks = {"keys": keys.check}
    async with client_of(context_of(world, authenticate=KeyAccess(keys), checks=checks)) as client:
        client.headers["x-api-key"] = key
        assert (await client.get("/v1/jobs")).status_code == 200
        os.chmod(path, mode)
        for _ in range(3):
            answer = await client.get("/v1/jobs")
            assert (answer.status_code, answer.json()["code"]) == (
                503,
                "AUTHENTICATION_UNAVAILABLE",
            )
        ready = await client.get("/readyz")
        assert ready.json()["checks"] == {"keys": "failed"}, "why is in the log"
        assert str(path) not in answer.text + ready.text
        assert caplog.text.count("its keys are not used: chmod 600") == 1
        assert caplog.text.count("the check of keys says: keys.json is open to others") == 1
        os.chmod(path, 0o600)
        assert (await client.get("/v1/jobs")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200


def test_no_key_is_made_in_a_file_that_others_can_open(tmp_path: Path) -> None:
    run = lucius(tmp_path)
    run("create", "ci", "--role", "read", "--all-tenants")
    os.chmod(tmp_path / "keys.json", 0o644)
    for words in (("create", "x", "--role", "read", "--all-tenants"), ("list",), ("revoke", "x")):
        result = run(*words)
        assert result.exit_code == 1
        assert "chmod 600" in result.stderr


# -- the command line ----------------------------------------------------------------------------


async def test_a_key_of_the_command_line_opens_the_api(tmp_path: Path, world: World) -> None:
    run = lucius(tmp_path)
    words = ("create", "ci", "--role", "read", "--tenant", "tenant_a")
    made = await asyncio.to_thread(run, *words)
    access = KeyAccess(KeyFile(tmp_path / "keys.json"))
    async with client_of(context_of(world, authenticate=access)) as client:
        for header in ("x-api-key", "authorization"):
            text = made.stdout.strip()
            value = text if header == "x-api-key" else f"Bearer {text}"
            assert (await client.get("/v1/jobs", headers={header: value})).status_code == 200
        await asyncio.to_thread(run, "revoke", made.stdout.split("_")[1])
        assert (await client.get("/v1/jobs", headers={header: value})).status_code == 401


def test_a_key_is_shown_once(tmp_path: Path) -> None:
    run = lucius(tmp_path)
    made = json.loads(run("create", "ci", "--role", "read", "--all-tenants", "--json").stdout)
    for listing in (run("list"), run("list", "--json")):
        assert made["key_id"] in listing.stdout
        assert made["key"].split("_", 2)[2] not in listing.output
    assert made["tenants"] is None


def test_the_list_says_what_became_of_each_key(tmp_path: Path) -> None:
    run = lucius(tmp_path)
    flags = ("--role", "read", "--all-tenants", "--json")
    revoked = json.loads(run("create", "old", *flags).stdout)
    run("create", "gone", *flags, "--expires-in", "0s")
    run("create", "new", *flags, "--expires-in", "90d")
    assert json.loads(run("revoke", revoked["key_id"], "--json").stdout)["state"] == "revoked"
    keys = json.loads(run("list", "--json").stdout)["keys"]
    assert [key["state"] for key in keys] == ["revoked", "expired", "active"]


@pytest.mark.parametrize(
    ("args", "exit_code"),
    [
        (("create", "ci", "--all-tenants"), 2),
        (("create", "ci", "--role", "read"), 2),
        (("create", "ci", "--role", "read", "--tenant", "a", "--all-tenants"), 2),
        (("create", "ci", "--role", "emperor", "--all-tenants"), 2),
        (("create", " ", "--role", "read", "--all-tenants"), 1),
        (("create", "ci", "--role", "read", "--tenant", ""), 1),
        (("revoke", "nobody"), 1),
    ],
)
def test_a_mistake_makes_nothing(tmp_path: Path, args: tuple[str, ...], exit_code: int) -> None:
    result = lucius(tmp_path)(*args)
    assert result.exit_code == exit_code
    assert isinstance(result.exception, SystemExit)
    assert not (tmp_path / "keys.json").exists()


def test_the_command_line_knows_every_role() -> None:
    assert tuple(role.value for role in Role) == ROLES


def test_each_tenant_has_a_webhook_secret_of_its_own(tmp_path: Path) -> None:
    run = lucius(tmp_path)
    first, again, other = (run("webhook", tenant).stdout for tenant in ("a", "a", "b"))
    assert first.startswith("whsec_")
    assert first == again != other
