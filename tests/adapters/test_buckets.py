"""What is particular to buckets: credentials, addresses, stores that check no conditions, and errors."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from unittest.mock import patch

import pytest
from aiohttp import web

from lucius.adapters.workspaces.buckets import gcs, s3
from lucius.adapters.workspaces.objects import ObjectWorkspace
from lucius.app.adapters import UnsupportedError, check_workspace, open_workspace
from lucius.app.settings import load_settings
from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from lucius.ports.workspace import Workspace
from tests.s3_server import S3Server, shared_s3

NO_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_BEARER_TOKEN")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Its credentials are those of this process."""
    found = shared_s3()
    for name, value in found.known.items():
        monkeypatch.setenv(name, value)
    return found


def opened(url: str, **given: str) -> Workspace:
    """As settings and the variables of its vendor open it."""
    with patch.dict(os.environ, given):
        return open_workspace(load_settings({"LUCIUS_WORKSPACE_URL": url, **given}))


@asynccontextmanager
async def listening(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def failures(objects: Workspace, root: str) -> list[WorkspaceError]:
    """What each way to a store fails with."""
    found = []
    for attempt in (
        objects.read(f"{root}x"),
        objects.digest(f"{root}x"),
        objects.write(f"{root}x", b""),
        objects.create(f"{root}x", b""),
        objects.list(root),
        objects.folders(root),
        objects.remove(f"{root}folder/"),
    ):
        with pytest.raises(WorkspaceError) as raised:
            await attempt
        found.append(raised.value)
    return found


# -- who asks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
async def test_wrong_keys_are_told_with_what_helps(
    name: str, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "AKIAWRONG")
    root = f"s3://{server.bucket()}/"
    for failure in await failures(opened(root), root):
        assert failure.code == "STORAGE_ACCESS_DENIED"
        assert str(failure).startswith(root)
        assert "AWS_SECRET_ACCESS_KEY" in str(failure)
        assert server.secret not in str(failure)


async def test_a_wrong_token_of_google_is_told_with_what_helps(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "another")
    root = f"gs://{server.bucket()}/"
    for failure in await failures(opened(root), root):
        assert failure.code == "STORAGE_ACCESS_DENIED"
        assert "GOOGLE_APPLICATION_CREDENTIALS" in str(failure)


async def test_where_there_are_no_credentials_the_machine_is_asked_and_that_is_told(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata service of a cloud answers at one address of all machines; here it has no role."""
    for name in NO_CREDENTIALS:
        monkeypatch.delenv(name)
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=404)

    async with listening(answer) as url:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", url)
        root = f"s3://{server.bucket()}/"
        with pytest.raises(WorkspaceError, match="no usable credentials") as raised:
            await opened(root).read(f"{root}x")
    assert raised.value.code == "STORAGE_ACCESS_DENIED"
    assert asked == ["/latest/api/token"]


# -- what is missing -----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["s3", "gs"])
async def test_a_bucket_that_does_not_exist_is_named(scheme: str, server: S3Server) -> None:
    root = f"{scheme}://not-there/"
    for failure in await failures(opened(root), root):
        assert failure.code == "BUCKET_MISSING"
        assert "its bucket does not exist: create it" in str(failure)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
async def test_an_object_that_does_not_exist_is_none(scheme: str, server: S3Server) -> None:
    root = f"{scheme}://{server.bucket()}/"
    objects = opened(root)
    assert await objects.read(f"{root}x") is None
    assert await objects.size(f"{root}x") is None
    assert await objects.digest(f"{root}x") is None


# -- where it is -------------------------------------------------------------------------------


async def signed_at(variable: str = "LUCIUS_S3_ENDPOINT", **given: str) -> str:
    """What a request to a server of S3 was signed for."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(f"{request.headers['Authorization']} {request.path}")
        return web.Response(status=404)

    async with listening(answer) as url:
        assert await opened("s3://work", **{variable: url}, **given).read("s3://work/x") is None
    return seen[0]


async def test_the_region_is_that_of_the_environment(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert "/eu-north-1/s3/" in await signed_at("AWS_ENDPOINT_URL")


async def test_the_address_of_s3_goes_before_that_of_all_services(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    found = await signed_at("AWS_ENDPOINT_URL_S3")
    assert found.endswith(" /work/x"), "the bucket is in the path"


async def test_the_setting_goes_before_the_environment(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await signed_at()).endswith(" /work/x")


async def test_the_setting_of_google_goes_before_the_environment(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    root = f"gs://{server.bucket()}/"
    assert await opened(root, LUCIUS_GCS_ENDPOINT=server.gcs).read(f"{root}x") is None


@pytest.mark.parametrize(
    ("setting", "root"),
    [
        ("LUCIUS_S3_ENDPOINT", "s3://work"),
        ("AWS_ENDPOINT_URL", "s3://work"),
        ("LUCIUS_GCS_ENDPOINT", "gs://work"),
        ("STORAGE_EMULATOR_HOST", "gs://work"),
    ],
)
def test_documents_cross_a_network_in_the_clear_only_where_someone_has_said_so(
    setting: str, root: str
) -> None:
    for url in ("https://store.example:9000", "http://127.0.0.1:9000", "http://[::1]:9000"):
        opened(root, **{setting: url})
    for url in ("http://store.example:9000", "http://127.0.0.1.example", "ftp://127.0.0.1"):
        with pytest.raises(UnsupportedError, match=f"{setting}.*AWS_ALLOW_HTTP"):
            opened(root, **{setting: url})
    allowed = {setting: "http://store.example:9000", "AWS_ALLOW_HTTP": "true"}
    if root.startswith("s3:"):
        opened(root, **allowed)
    else:
        with pytest.raises(UnsupportedError, match=setting):
            opened(root, **allowed)


@pytest.mark.parametrize("url", ["s3://work/jobs", "gs://work/jobs"])
def test_services_that_run_here_may_write_there(url: str) -> None:
    check_workspace(load_settings({"LUCIUS_WORKSPACE_URL": url}))


# -- conditions --------------------------------------------------------------------------------


async def refused(objects: Workspace, root: str) -> list[WorkspaceRefusedError]:
    """How a store fails that does not check what it is asked to check."""
    found = []
    await objects.write(f"{root}old", b"old")
    old = await objects.digest(f"{root}old")
    assert old is not None
    for attempt in (objects.create(f"{root}new", b"x"), objects.replace(f"{root}old", b"x", old)):
        with pytest.raises(WorkspaceRefusedError) as raised:
            await attempt
        found.append(raised.value)
    return found


@pytest.mark.parametrize("kind", ["unconditional", "unable"])
async def test_a_store_that_checks_no_conditions_is_refused_at_first_use(
    kind: str, server: S3Server
) -> None:
    root = f"s3://{server.bucket()}/"
    objects = opened(root, LUCIUS_S3_ENDPOINT=getattr(server, kind))
    for failure in await refused(objects, root):
        assert failure.code == "STORE_UNCONDITIONAL"
        assert "LUCIUS_S3_ENDPOINT" in str(failure)
        assert "conditional writes" in str(failure)


async def test_without_that_look_two_workers_commit_the_same_step(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def believe(*args: object) -> None: ...

    monkeypatch.setattr(ObjectWorkspace, "_check", believe)
    root = f"s3://{server.bucket()}/"
    objects = opened(root, LUCIUS_S3_ENDPOINT=server.unconditional)
    assert await objects.create(f"{root}record", b"one")
    assert await objects.create(f"{root}record", b"two"), "and the first effect is gone"


@pytest.mark.parametrize("make", [s3, gcs])
async def test_a_store_that_checks_them_is_asked_once(
    make: Callable[..., object], server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    check = ObjectWorkspace._check

    async def counted(self: ObjectWorkspace, *args: object) -> None:
        checked.append(str(args[-1]))
        await check(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ObjectWorkspace, "_check", counted)
    root = f"{'s3' if make is s3 else 'gs'}://{server.bucket()}/"
    objects = opened(root)
    for number in range(3):
        scoped, place = objects.within(f"{root}{number}/"), f"{root}{number}/object"
        assert await scoped.create(place, b"old")
        old = await scoped.digest(place)
        assert old is not None
        assert await scoped.replace(place, b"new", old)
    assert checked == ["If-None-Match", "If-Match"]
