"""`lucius up --stack NAME` beside other users of the machine: what they see, and what they cannot use."""

import base64
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from azure.appconfiguration.aio import AzureAppConfigurationClient
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.data.tables.aio import TableServiceClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from nats.aio.client import Client

from lucius.app import stacks
from lucius.app.azure_stack import Stack, create_container
from lucius.app.settings import load_settings
from lucius.app.stacks import local_nats
from lucius.core.errors import LuciusError
from tests.azurite_server import KEY as PUBLISHED
from tests.cli.up import LUCIUS, Up, clean_environment, up
from tests.security.test_imports import imported, with_libraries, with_package

pytestmark = pytest.mark.xdist_group("stacks")
OTHERS = stat.S_IRWXG | stat.S_IRWXO
FIXED = "c3RhbmQtaW4="
"""The key that every Service Bus stand-in had once."""
REFUSED = "AuthorizationFailure"
"""As Azurite says it."""
OTHER = base64.b64encode(b"another key").decode()


@dataclass(frozen=True)
class Running:
    folder: Path
    server: Up

    @property
    def data(self) -> Path:
        return self.folder / ".lucius"

    @property
    def settings(self) -> dict[str, str]:
        return stacks.read(self.data)

    def secrets(self) -> set[str]:
        """As they stand in files, and as they are written in connection strings."""
        kept = {path.read_bytes() for path in self.data.glob("*.key")}
        assert kept
        return {each.decode() for secret in kept for each in (secret, base64.b64encode(secret))}

    def with_key(self, setting: str, key: str) -> str:
        """The connection string of the stack, with another key."""
        named = r"((?:AccountKey|SharedAccessKey|Secret)=)[^;]*"
        text, changed = re.subn(named, rf"\g<1>{key}", self.settings[setting])
        assert changed == 1
        return text


@contextmanager
def running(folder: Path, *words: str) -> Iterator[Running]:
    """With a lax umask, in a folder with strange libraries."""
    before = os.umask(0o022)
    try:
        with up(with_package(with_libraries(folder)), "--no-services", *words) as server:
            yield Running(folder, server)
    finally:
        os.umask(before)


@pytest.fixture(scope="module")
def on_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("nats"), "--stack", "nats") as stack:
        yield stack


@pytest.fixture(scope="module")
def on_temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """It has all that `--stack azure` has, and more."""
    words = ("--stack", "temporal", "--shared-machine")
    with running(tmp_path_factory.mktemp("temporal"), *words) as stack:
        yield stack


@pytest.fixture(params=["on_nats", "on_temporal"])
def stack(request: pytest.FixtureRequest) -> Running:
    found: Running = request.getfixturevalue(request.param)
    return found


# -- what others can see -------------------------------------------------------------------------


def test_a_fresh_data_directory_is_its_owners_alone(stack: Running) -> None:
    for path in (stack.data, *stack.data.iterdir()):
        assert not path.stat().st_mode & OTHERS, path
    assert "did not make" not in stack.server.log()


def test_the_mark_of_its_reconcilers_is_too(tmp_path: Path) -> None:
    """`--stack azure` makes one more file than the stacks above."""
    before = os.umask(0o022)
    try:
        movers = Stack(load_settings({"LUCIUS_DATA_DIR": str(tmp_path)}), os.environ)._movers()
    finally:
        os.umask(before)
    for each in movers:
        each.close()  # none of them is to run
    assert [path.stat().st_mode & OTHERS for path in tmp_path.iterdir()] == [0]


def commands() -> dict[int, str]:
    """Of all processes of this machine, as `ps` shows them to everyone."""
    listed = subprocess.run(
        ["ps", "-eww", "-o", "pid=,args="], capture_output=True, text=True, check=True
    )
    rows = (line.split(None, 1) for line in listed.stdout.splitlines())
    return {int(row[0]): row[1] for row in rows if len(row) == 2}


def test_no_command_carries_a_secret(stack: Running) -> None:
    shown = commands()
    own = [text for text in shown.values() if str(stack.folder) in text or ".lucius/" in text]
    assert own, "the processes of the stack are seen"
    for secret in stack.secrets():
        assert not [text for text in shown.values() if secret in text]


def test_neither_do_the_log_and_the_settings_that_are_shown(stack: Running) -> None:
    env = clean_environment(**stack.settings)
    done = subprocess.run(
        [LUCIUS, "settings"], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert "LUCIUS_BUS_BACKEND" in done.stdout
    for secret in stack.secrets():
        assert secret not in done.stdout + done.stderr
        assert secret not in stack.server.log()


def test_nothing_of_the_current_folder_is_imported(stack: Running) -> None:
    assert not imported(stack.folder)


# -- what others can use -------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["", "lucius:wrong@", "other:wrong@"], ids=["none", "key", "user"])
async def test_nats_refuses_strangers(on_nats: Running, who: str) -> None:
    place = on_nats.settings["LUCIUS_NATS_URL"].rpartition("@")[2]
    quiet: dict[str, Any] = {"allow_reconnect": False, "max_reconnect_attempts": 1}

    async def unheard(error: Exception) -> None:
        """It is raised too."""

    client = Client()
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await client.connect(f"nats://{who}{place}", error_cb=unheard, **quiet)
    await client.close()


async def test_nats_takes_its_own(on_nats: Running) -> None:
    client = await nats.connect(on_nats.settings["LUCIUS_NATS_URL"])
    streams = await client.jetstream().streams_info()
    assert "lucius-bus" in {each.config.name for each in streams}
    await client.close()


def test_a_service_beside_it_finds_the_settings(on_nats: Running) -> None:
    """As `docs/how-to/nats.md` says: in the same data directory, without any secret in the command."""
    (on_nats.folder / "mine.py").write_text(SERVICE)
    words = [LUCIUS, "service", "run", "mine:Mine", "--json"]
    with subprocess.Popen(
        words, cwd=on_nats.folder, env=clean_environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert '"ready": true' in process.stdout.readline()
        process.terminate()
        process.communicate(timeout=60)


SERVICE = """
from lucius.platform import Output, Service
class Mine(Service):
    name = 'mine'
    step_types = ('MINE',)
    async def execute(self, task):
        return Output()
"""


@pytest.mark.parametrize("key", [PUBLISHED, OTHER], ids=["published", "another"])
async def test_azurite_refuses_strangers(on_temporal: Running, key: str) -> None:
    tables = on_temporal.with_key("LUCIUS_TABLE_CONNECTION", key)
    async with TableServiceClient.from_connection_string(tables) as client:
        with pytest.raises(HttpResponseError, match=REFUSED):
            await client.create_table("theirs")
    blobs = on_temporal.with_key("LUCIUS_BLOB_CONNECTION", key)
    with pytest.raises(LuciusError, match=REFUSED):
        await create_container(blobs, "theirs")


async def test_azurite_takes_its_own(on_temporal: Running) -> None:
    text = on_temporal.settings["LUCIUS_TABLE_CONNECTION"]
    async with TableServiceClient.from_connection_string(text) as client:
        assert [table.name async for table in client.list_tables()]


@pytest.mark.parametrize("key", [FIXED, OTHER], ids=["once fixed", "another"])
async def test_the_service_bus_stand_in_refuses_strangers(on_temporal: Running, key: str) -> None:
    text = on_temporal.with_key("LUCIUS_SERVICEBUS_CONNECTION", key)
    async with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            async with client.get_topic_sender("lucius-replies-0") as sender:
                await sender.send_messages(ServiceBusMessage(b"{}"))


async def test_the_app_configuration_stand_in_refuses_strangers(on_temporal: Running) -> None:
    text = on_temporal.with_key("LUCIUS_APPCONFIG_CONNECTION", OTHER)
    async with AzureAppConfigurationClient.from_connection_string(text, retry_total=0) as client:
        with pytest.raises(ClientAuthenticationError):
            await client.get_configuration_setting("lucius/sentinel")


# -- a data directory of an earlier version, which had no secrets --------------------------------


def test_credentials_of_other_servers_are_not_shown_to_the_one_that_is_started(
    tmp_path: Path,
) -> None:
    with local_nats({"LUCIUS_NATS_PASSWORD": "of another server"}, tmp_path) as found:
        assert found["LUCIUS_NATS_PASSWORD"] == ""
