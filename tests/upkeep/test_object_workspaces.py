"""Jobs whose workspaces are in object stores: they run, are verified, and are pruned, as on local files."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from lucius.app.adapters import UnsupportedError, installation, job_workspaces, open_workspace
from lucius.app.azure_stack import create_container
from lucius.app.building import build
from lucius.app.services import packaged_services
from lucius.app.settings import Settings
from lucius.app.upkeep import prune, verify
from lucius.core.errors import WorkspaceError
from lucius.core.job import Job
from lucius.operations.retention import WorkspaceOwnedError
from tests.azurite_server import shared_azurite
from tests.s3_server import shared_s3
from tests.services.scripted import Scripted
from tests.upkeep.installation import envelope, settings_in

Storage = tuple[dict[str, str], str]


@pytest.fixture(params=["az", "s3", "gs"])
async def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """The settings of a store, and a new container or bucket in it."""
    if request.param == "az":
        connection, container = shared_azurite().blob_connection, f"work-{uuid4().hex[:8]}"
        await create_container(connection, container)
        return {"LUCIUS_BLOB_CONNECTION": connection}, f"az://{container}"
    server = shared_s3()
    for name, value in server.known.items():
        monkeypatch.setenv(name, value)
    return {}, f"{request.param}://{server.bucket()}"


@pytest.fixture
def settings(storage: Storage, tmp_path: Path) -> Settings:
    given, base = storage
    return settings_in(
        tmp_path,
        LUCIUS_WORKSPACE_URL=f"{base}/jobs",
        LUCIUS_OUTPUT_ROOTS=f"{base}/out",
        **given,
    )


async def succeeded(settings: Settings) -> Job:
    runtime = await build(settings, [Scripted()])
    async with runtime.running():
        command = envelope(settings)
        command["output_ref"] = f"{settings.output_roots[0]}/{{jobId}}.txt"
        submitted = await runtime.engine.submit(command)
        ended = await runtime.engine.ended(submitted.job_id, 30)
    assert ended is not None
    assert ended.state == "SUCCEEDED"
    return ended


async def test_a_job_is_verified_and_pruned_with_its_workspace(settings: Settings) -> None:
    job = await succeeded(settings)
    workspace = open_workspace(settings)
    folder = f"{settings.workspace_url}/lucius/acme/{job.job_id}/"
    assert len(await workspace.list(folder)) >= 2, "the output and its commit record"
    (output,) = await workspace.list(f"{settings.output_roots[0]}/")
    assert await verify(settings) == []
    await workspace.write(output, b"changed by hand")
    (drift,) = await verify(settings)
    assert (drift.kind, drift.subject) == ("output_changed", output)
    assert await prune(settings, datetime.now(UTC) + timedelta(days=1)) == 1
    assert await workspace.list(folder) == []
    assert await workspace.list(f"{settings.output_roots[0]}/") == [output], "it is the client's"


async def test_workspaces_of_another_installation_are_left_alone(
    settings: Settings, storage: Storage, tmp_path: Path
) -> None:
    await job_workspaces(settings, open_workspace(settings)).claim()
    (tmp_path / "other").mkdir()
    other = settings_in(
        tmp_path / "other",
        LUCIUS_WORKSPACE_URL=settings.workspace_url,
        **storage[0],
    )
    with pytest.raises(WorkspaceOwnedError):
        await build(other)


URL = "https://acct.table.core.windows.net"
KEYED = "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=old"


@pytest.mark.parametrize(
    ("connection", "more", "same"),
    [
        (KEYED, {}, True),
        (KEYED.replace("old", "new"), {}, True),
        (URL, {}, True),
        (URL.replace("acct", "other"), {}, False),
        (KEYED, {"LUCIUS_LEDGER_TABLE": "second"}, False),
        (KEYED, {"LUCIUS_STORAGE_BACKEND": "table", "LUCIUS_JOBS_TABLE": "lucius_ledger"}, False),
    ],
)
def test_processes_that_share_a_ledger_share_its_workspaces(
    connection: str, more: dict[str, str], same: bool, tmp_path: Path
) -> None:
    """Each has a data directory of its own, and a key may have been rotated between two starts."""
    given = {"LUCIUS_STORAGE_BACKEND": "ledger", "LUCIUS_TABLE_CONNECTION": KEYED}
    names = []
    for number, its in enumerate((given, given | {"LUCIUS_TABLE_CONNECTION": connection} | more)):
        (tmp_path / str(number)).mkdir()
        names.append(installation(settings_in(tmp_path / str(number), **its)))
    assert (names[0] == names[1]) is same


async def test_a_container_that_is_missing_stops_the_start_by_name(tmp_path: Path) -> None:
    settings = settings_in(
        tmp_path,
        LUCIUS_WORKSPACE_URL="az://missing",
        LUCIUS_BLOB_CONNECTION=shared_azurite().blob_connection,
    )
    with pytest.raises(WorkspaceError, match=r"az://missing/.*does not exist: create it"):
        await build(settings)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"LUCIUS_WORKSPACE_URL": "az://work"}, "set LUCIUS_BLOB_CONNECTION"),
        ({"LUCIUS_INPUT_ROOTS": "az://docs"}, "az://docs.*set LUCIUS_BLOB_CONNECTION"),
        (
            {
                "LUCIUS_WORKSPACE_URL": "https://other.blob.core.windows.net/work",
                "LUCIUS_BLOB_CONNECTION": "https://mine.blob.core.windows.net",
            },
            "LUCIUS_WORKSPACE_URL, .*account mine",
        ),
        (
            {
                "LUCIUS_INPUT_ROOTS": "hdfs://bucket",
                "LUCIUS_BLOB_CONNECTION": "https://mine.blob.core.windows.net",
            },
            "LUCIUS_INPUT_ROOTS.*hdfs://bucket.*read and write file, mem, s3, gs, az",
        ),
        ({"LUCIUS_INPUT_ROOTS": "s3://UPPER"}, "LUCIUS_INPUT_ROOTS.*'s3://UPPER' does not name"),
    ],
)
async def test_settings_that_do_not_fit_are_refused_by_name(
    given: dict[str, str], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        await build(settings_in(tmp_path, **given), [Scripted()])


async def test_packaged_services_read_and_write_objects(settings: Settings, tmp_path: Path) -> None:
    """They are isolated in processes of their own, and this one reads and writes for them."""
    base = settings.workspace_url.removesuffix("/jobs")
    changes = {"protocols": ("packaged",), "input_roots": (f"{base}/in",)}
    inputs = settings.model_copy(update=changes)
    place = f"{base}/in/doc.txt"
    writer = open_workspace(settings.model_copy(update={"output_roots": (f"{base}/in",)}))
    await writer.write(place, b"a document")
    runtime = await build(inputs, packaged_services(inputs))
    async with runtime.running():
        command = envelope(settings) | {"request_type": "OCR->EMBEDDING", "input_ref": place}
        command["output_ref"] = f"{settings.output_roots[0]}/vectors.json"
        submitted = await runtime.engine.submit(command)
        ended = await runtime.engine.ended(submitted.job_id, 60)
    assert ended is not None
    assert ended.state == "SUCCEEDED"
    assert await open_workspace(settings).read(f"{settings.output_roots[0]}/vectors.json")


@pytest.mark.parametrize("place", ["az://elsewhere/x", "s3://bucket/x", "gs://bucket/x"])
async def test_an_output_that_nobody_can_write_fails_the_step_with_a_code(
    settings: Settings, place: str
) -> None:
    runtime = await build(settings, [Scripted()])
    async with runtime.running():
        submitted = await runtime.engine.submit(envelope(settings) | {"output_ref": place})
        ended = await runtime.engine.ended(submitted.job_id, 30)
    assert ended is not None
    assert ended.state == "FAILED_FINAL"
    assert "OUTPUT_NOT_WRITABLE" in str(ended.steps[0])
