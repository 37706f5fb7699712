"""What is particular to Azure Blob: connections, spellings of one blob, who may touch what, and errors."""

from dataclasses import replace
from threading import get_ident
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from obstore.store import MemoryStore

from lucius.adapters.workspaces import azure_blob
from lucius.adapters.workspaces.azure_account import Account, BlobConnectionError, account_of
from lucius.adapters.workspaces.azure_blob import blobs, stores_of
from lucius.adapters.workspaces.objects import ObjectWorkspace
from lucius.app.azure_stack import create_container
from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from tests.azurite_server import shared_azurite

HOST = "name.blob.core.windows.net"
SPELLINGS = [
    "az://work/{}",
    "abfs://work/{}",
    f"abfs://work@{HOST}/{{}}",
    "abfss://work@name.dfs.core.windows.net/{}",
    f"https://{HOST}/work/{{}}",
    "https://name.dfs.core.windows.net/work/{}",
    f"HTTPS://{HOST.upper()}/work/{{}}",
]


def workspace(**places: Any) -> ObjectWorkspace:
    """In memory; `home` is az://work/jobs."""
    containers = {"work": MemoryStore(), "docs": MemoryStore()}
    stores = replace(
        blobs(Account("name", f"https://{HOST}", {"account_key": "a2V5"})),
        open=containers.__getitem__,
    )
    return ObjectWorkspace([stores], home="az://work/jobs", **places)


def opened(connection: str, home: str) -> ObjectWorkspace:
    return ObjectWorkspace([blobs(account_of(connection))], home=home)


# -- connections -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connection", "name", "endpoint", "access"),
    [
        (
            "AccountName=a;AccountKey=k==",
            "a",
            "https://a.blob.core.windows.net",
            {"account_key": "k=="},
        ),
        (
            "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=k;EndpointSuffix=core.example",
            "a",
            "http://a.blob.core.example",
            {"account_key": "k"},
        ),
        (
            "BlobEndpoint=http://127.0.0.1:1/a/;SharedAccessSignature=sv=1&sig=x;AccountName=a",
            "a",
            "http://127.0.0.1:1/a",
            {"sas_key": "sv=1&sig=x"},
        ),
        ("https://a.blob.core.windows.net/", "a", "https://a.blob.core.windows.net", {}),
        ("https://a.dfs.core.windows.net", "a", "https://a.blob.core.windows.net", {}),
    ],
)
def test_a_connection_is_a_string_of_parts_or_an_account(
    connection: str, name: str, endpoint: str, access: dict[str, str]
) -> None:
    assert account_of(connection) == Account(name, endpoint, access)


@pytest.mark.parametrize(
    "connection", ["a", "AccountName=a", "AccountKey=k", "https://a.example/container", "https://a"]
)
def test_what_is_no_connection_is_refused_by_its_setting(connection: str) -> None:
    with pytest.raises(BlobConnectionError, match="LUCIUS_BLOB_CONNECTION is neither"):
        account_of(connection)


def test_a_key_is_not_shown() -> None:
    assert "geheim" not in repr(account_of("AccountName=a;AccountKey=geheim"))


async def test_an_account_is_reached_with_the_identity_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Identity:
        def get_token(self, *scopes: str, **options: Any) -> Any:
            threads.append(get_ident())
            return SimpleNamespace(token=f"token for {scopes[0]}", expires_on=4_000_000_000)

    said: list[str | None] = []
    threads: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        said.append(request.headers.get("Authorization"))
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setattr(azure_blob, "DefaultAzureCredential", Identity)
    account = Account("name", f"http://127.0.0.1:{runner.addresses[0][1]}/name")
    store = stores_of(account)("work")
    with pytest.raises(FileNotFoundError):
        await store.get_async("object")
    assert said == ["Bearer token for https://storage.azure.com/.default"]
    assert get_ident() not in threads, "the event loop does not wait for a token"
    await runner.cleanup()


# -- references ------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_all_spellings_name_the_same_blob(spelling: str) -> None:
    objects = workspace()
    await objects.write("az://work/jobs/a%20b%23c%3Fd%2520%C3%A9", b"x")
    uri = spelling.format("jobs/a%20b%23c%3Fd%2520%C3%A9")
    assert await objects.read(uri) == b"x"
    (listed,) = await objects.list(spelling.format("jobs/"))
    assert await objects.read(listed) == b"x"
    assert listed.lower().startswith(spelling.format("").lower()), "as it was asked for"


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_no_spelling_leads_to_the_work_of_another_job(spelling: str) -> None:
    objects = workspace(readable=["az://work"], writable=["az://work"])
    await objects.write("az://work/jobs/b/job_2/secret", b"b's")
    scoped = objects.within("az://work/jobs/a/job_1/")
    uri = spelling.format("jobs/b/job_2/secret")
    for attempt in (scoped.read(uri), scoped.write(uri, b"x"), scoped.remove(uri)):
        with pytest.raises(WorkspaceRefusedError):
            await attempt
    assert await scoped.list(spelling.format("")) == []
    assert await scoped.read(spelling.format("elsewhere")) is None, "which the root opens"


async def test_roots_open_places_to_read_and_places_to_write() -> None:
    objects = workspace(readable=["az://docs/in"], writable=["az://docs/out/"])
    scoped = objects.within("az://work/jobs/a/job_1/")
    assert await scoped.read("az://docs/in/x") is None
    assert not scoped.writable("az://docs/in/x")
    assert scoped.writable("az://docs/out/x")
    for uri in ("az://docs/inside", "az://docs/output", "az://docs/x"):
        with pytest.raises(WorkspaceRefusedError, match="LUCIUS_INPUT_ROOTS"):
            await scoped.read(uri)


@pytest.mark.parametrize("uri", ["az://work/jobs/a/", "az://work"])
async def test_a_folder_is_not_an_object(uri: str) -> None:
    objects = workspace(writable=["az://work"])
    with pytest.raises(WorkspaceRefusedError):
        await objects.within().write(uri, b"x")


# -- errors ----------------------------------------------------------------------------------


async def test_a_container_that_does_not_exist_is_named() -> None:
    objects = opened(shared_azurite().blob_connection, "az://not-there")
    for attempt in (
        objects.read("az://not-there/x"),
        objects.write("az://not-there/x", b""),
        objects.create("az://not-there/x", b""),
        objects.list("az://not-there/"),
        objects.folders("az://not-there/"),
    ):
        with pytest.raises(WorkspaceError, match=r"az://not-there/.*does not exist") as raised:
            await attempt
        assert raised.value.code == "BUCKET_MISSING"


async def test_a_wrong_key_is_told_with_what_helps() -> None:
    connection, container = shared_azurite().blob_connection, f"keyed-{uuid4().hex[:8]}"
    await create_container(connection, container)
    wrong = connection.replace("AccountKey=Eby8", "AccountKey=AAAA")
    objects, uri = opened(wrong, f"az://{container}"), f"az://{container}/x"
    for attempt in (
        objects.read(uri),
        objects.create(uri, b""),
        objects.list(f"az://{container}/"),
    ):
        with pytest.raises(
            WorkspaceError, match=r"LUCIUS_BLOB_CONNECTION.*Data Contributor"
        ) as raised:
            await attempt
        assert raised.value.code == "STORAGE_ACCESS_DENIED"


async def test_an_account_that_does_not_answer_is_told_without_its_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(azure_blob, "RETRIES", {"max_retries": 0})
    said = "AccountName=a;SharedAccessSignature=sv=1&sig=geheim;BlobEndpoint=http://127.0.0.1:9/a"
    objects = opened(said, "az://work")
    for attempt in (objects.read("az://work/x"), objects.list("az://work/")):
        with pytest.raises(WorkspaceError, match=r"az://work/x?: ") as raised:
            await attempt
        assert "geheim" not in str(raised.value)
