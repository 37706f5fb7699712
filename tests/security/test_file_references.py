"""A tenant cannot reach the server's secrets, or the work of others, by naming files."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from lucius.adapters.workspaces import places
from lucius.app.adapters import ingress_policy, open_workspace, workspace_root
from lucius.app.settings import Settings, load_settings
from lucius.core.errors import WorkspaceRefusedError
from lucius.core.references import reference_faults
from tests.api.live import Live, live
from tests.services.stage import packaged

SECRETS = ("keys.json", "callback.key", "webhook.key", "ledger.db")
Spelled = Callable[[Path, Path], str]


def by_name(data: Path, secret: Path) -> str:
    return secret.as_uri()


def by_localhost(data: Path, secret: Path) -> str:
    return f"FILE://LocalHost{secret}"


def by_escapes(data: Path, secret: Path) -> str:
    return "file://" + "".join(f"%{ord(c):02x}" if c.isalnum() else c for c in str(secret))


def by_escapes_twice(data: Path, secret: Path) -> str:
    return "file://" + quote(str(secret).replace("a", "%61"))


def by_many_slashes(data: Path, secret: Path) -> str:
    return f"file:///{str(secret).replace('/', '//')}"


def by_dots(data: Path, secret: Path) -> str:
    return f"file://{secret.parent}/././{secret.name}"


def by_other_case(data: Path, secret: Path) -> str:
    return f"file://{data.parent}/{data.name.upper()}/{secret.relative_to(data)}"


def by_linked_file(data: Path, secret: Path) -> str:
    link = data.parent / "innocent.pdf"
    link.symlink_to(secret)
    return link.as_uri()


def by_linked_folder(data: Path, secret: Path) -> str:
    link = data.parent / "documents"
    link.symlink_to(data)
    return f"{link.as_uri()}/{secret.relative_to(data)}"


def by_process_root(data: Path, secret: Path) -> str:
    return f"file:///proc/self/root{secret}"


SPELLINGS = [
    by_name,
    by_localhost,
    by_escapes,
    by_escapes_twice,
    by_many_slashes,
    by_dots,
    by_other_case,
    by_linked_file,
    by_linked_folder,
    by_process_root,
]


def settings_of(folder: Path, **more: str) -> Settings:
    given = {"LUCIUS_DATA_DIR": str(folder / "data"), "LUCIUS_INPUT_ROOTS": str(folder)}
    given |= {"LUCIUS_OUTPUT_ROOTS": str(folder), "LUCIUS_REFERENCE_SCHEMES": "file"}
    return load_settings(given | {f"LUCIUS_{name.upper()}": text for name, text in more.items()})


def planted(folder: Path) -> Path:
    """A data directory with a secret and the output of another tenant's job in it."""
    data = folder / "data"
    job = data / "workspace/lucius/tenant_b/job_b/ocr"
    job.mkdir(parents=True)
    (job / "output.txt").write_text("tenant b's")
    for name in SECRETS:
        (data / name).write_text("secret")
    return data


# -- at the door -----------------------------------------------------------------------------


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("name", ["keys.json", "workspace/lucius/tenant_b/job_b/ocr/output.txt"])
def test_no_spelling_of_a_protected_place_is_let_in(
    tmp_path: Path, spelled: Spelled, name: str
) -> None:
    data = planted(tmp_path)
    policy = ingress_policy(settings_of(tmp_path)).references
    faults = reference_faults({"uri": spelled(data, data / name)}, "/input_ref", policy)
    assert [(f.code, f.pointer) for f in faults] == [("REFERENCE_PROTECTED", "/input_ref/uri")]


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_a_folder_that_was_let_in_before_opens_nothing_else(
    tmp_path: Path, spelled: Spelled
) -> None:
    """The quick way for folders that are known: a link or a folder in them is looked at closely."""
    data = planted(tmp_path)
    policy = ingress_policy(settings_of(tmp_path)).references
    reference = spelled(data, data / "keys.json")
    (tmp_path / "plain.pdf").write_text("a document")
    for folder in (tmp_path, *(each for each in tmp_path.iterdir() if each.is_dir())):
        reference_faults((folder / "plain.pdf").as_uri(), "/input_ref", policy)
    (fault,) = reference_faults(reference, "/input_ref", policy)
    assert fault.code == "REFERENCE_PROTECTED"


def test_a_document_that_becomes_a_link_to_a_secret_is_refused(tmp_path: Path) -> None:
    data = planted(tmp_path)
    policy = ingress_policy(settings_of(tmp_path)).references
    document = tmp_path / "plain.pdf"
    document.write_text("a document")
    for _ in range(2):
        assert not reference_faults(document.as_uri(), "/input_ref", policy)
    document.unlink()
    document.symlink_to(data / "keys.json")
    (fault,) = reference_faults(document.as_uri(), "/input_ref", policy)
    assert fault.code == "REFERENCE_PROTECTED"


def test_a_folder_that_becomes_a_link_to_a_protected_place_is_refused(tmp_path: Path) -> None:
    data = planted(tmp_path)
    policy = ingress_policy(settings_of(tmp_path)).references
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "keys.json").write_text("a document")
    for _ in range(2):
        assert not reference_faults((folder / "keys.json").as_uri(), "/input_ref", policy)
    folder.rename(tmp_path / "moved")
    folder.symlink_to(data)
    (fault,) = reference_faults((folder / "keys.json").as_uri(), "/input_ref", policy)
    assert fault.code == "REFERENCE_PROTECTED"


def test_documents_of_one_folder_resolve_its_path_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(tmp_path)
    policy = ingress_policy(settings_of(tmp_path)).references
    resolved: list[str] = []

    def counted(path: str) -> str:
        resolved.append(path)
        return os.path.realpath(path)

    monkeypatch.setattr(places, "real_path", counted)
    for number in range(5):
        document = tmp_path / f"{number}.pdf"
        document.write_text("a document")
        assert not reference_faults(document.as_uri(), "/input_ref", policy)
    assert len(resolved) == 1


@pytest.mark.parametrize("climb", ["../data/keys.json", "%2e%2e/data/keys.json", "..%2fdata/x"])
def test_climbing_is_refused_before_anything_is_looked_at(tmp_path: Path, climb: str) -> None:
    planted(tmp_path)
    policy = ingress_policy(settings_of(tmp_path)).references
    (fault,) = reference_faults(f"{tmp_path.as_uri()}/in/{climb}", "/input_ref", policy)
    assert fault.code == "REFERENCE_INVALID"


def test_what_is_not_there_yet_is_protected_too(tmp_path: Path) -> None:
    policy = ingress_policy(settings_of(tmp_path)).references
    for name in ("data", "data/keys.json", "data/workspace/lucius/b/job_9/ocr/output.txt"):
        (fault,) = reference_faults((tmp_path / name).as_uri(), "/output_ref", policy)
        assert fault.code == "REFERENCE_PROTECTED"
    assert not reference_faults((tmp_path / "database.pdf").as_uri(), "/output_ref", policy)


def test_a_workspace_elsewhere_is_protected_like_the_data_directory(tmp_path: Path) -> None:
    elsewhere = tmp_path / "shared"
    settings = settings_of(tmp_path, workspace_url=elsewhere.as_uri())
    policy = ingress_policy(settings).references
    (fault,) = reference_faults((elsewhere / "lucius/b/job_1/x").as_uri(), "/input_ref", policy)
    assert fault.code == "REFERENCE_PROTECTED"


async def test_the_api_refuses_with_code_and_pointer(tmp_path: Path) -> None:
    async with live(tmp_path / "data", reference_schemes="file") as world:
        secret = (tmp_path / "data/callback.key").as_uri()
        for name in ("input_ref", "output_ref"):
            other = "output_ref" if name == "input_ref" else "input_ref"
            refused = await world.submit(**{name: secret, other: (tmp_path / "doc").as_uri()})
            assert refused.status_code == 422
            assert refused.json()["code"] == "REFERENCE_PROTECTED"
            assert [each["pointer"] for each in refused.json()["errors"]] == [f"/{name}"]


# -- defaults --------------------------------------------------------------------------------


def test_files_may_be_named_by_default_only_where_there_is_one_user(tmp_path: Path) -> None:
    alone = load_settings({})
    assert "file" in alone.reference_schemes
    assert alone.input_roots == alone.output_roots == (".",)
    keyed = load_settings({"LUCIUS_AUTH": "keys"})
    assert "file" not in keyed.reference_schemes
    assert keyed.input_roots == keyed.output_roots == ()
    named = load_settings({"LUCIUS_AUTH": "keys", "LUCIUS_REFERENCE_SCHEMES": "file,s3"})
    assert named.reference_schemes == ("file", "s3")


async def test_with_keys_a_named_scheme_opens_no_directory_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc").write_text("x")
    given = {"LUCIUS_AUTH": "keys", "LUCIUS_REFERENCE_SCHEMES": "file"}
    workspace = open_workspace(load_settings(given)).within()
    with pytest.raises(WorkspaceRefusedError):
        await workspace.read((tmp_path / "doc").as_uri())
    assert not workspace.writable((tmp_path / "out").as_uri())


# -- behind the door -------------------------------------------------------------------------


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("name", ["keys.json", "workspace/lucius/tenant_b/job_b/ocr/output.txt"])
async def test_a_service_cannot_touch_it_even_if_it_was_let_in(
    tmp_path: Path, spelled: Spelled, name: str
) -> None:
    data = planted(tmp_path)
    settings = settings_of(tmp_path)
    own = workspace_root(settings) / "lucius/tenant_a/job_a"
    workspace = open_workspace(settings).within(own.as_uri() + "/")
    uri, before = spelled(data, data / name), (data / name).read_bytes()
    assert not workspace.writable(uri)
    for attempt in (workspace.read(uri), workspace.write(uri, b"x"), workspace.create(uri, b"x")):
        with pytest.raises(WorkspaceRefusedError):
            await attempt
    assert (data / name).read_bytes() == before
    await workspace.write(f"{own.as_uri()}/ocr/output.txt", b"mine")
    assert await workspace.read(f"{own.as_uri()}/ocr/output.txt") == b"mine"


async def test_a_link_inside_its_own_folder_leads_a_job_nowhere_else(tmp_path: Path) -> None:
    data = planted(tmp_path)
    own = data / "workspace/lucius/tenant_a/job_a"
    own.mkdir(parents=True)
    (own / "link").symlink_to(data / "keys.json")
    (own / "folder").symlink_to(data / "workspace/lucius/tenant_b/job_b")
    workspace = open_workspace(settings_of(tmp_path)).within(own.as_uri())
    for name in ("link", "folder/ocr/output.txt"):
        with pytest.raises(WorkspaceRefusedError):
            await workspace.read(f"{own.as_uri()}/{name}")


async def test_a_folder_that_is_no_job_of_the_workspace_opens_nothing(tmp_path: Path) -> None:
    data = planted(tmp_path)
    for folder in (data, data / "workspace", tmp_path, Path("/")):
        workspace = open_workspace(settings_of(tmp_path)).within(folder.as_uri())
        for name in ("keys.json", "workspace/lucius/tenant_b/job_b/ocr/output.txt"):
            with pytest.raises(WorkspaceRefusedError):
                await workspace.read((data / name).as_uri())


async def test_a_list_of_an_open_directory_leaves_out_what_is_protected(tmp_path: Path) -> None:
    planted(tmp_path)
    (tmp_path / "doc").write_text("x")
    workspace = open_workspace(settings_of(tmp_path)).within()
    assert await workspace.list(tmp_path.as_uri() + "/") == [(tmp_path / "doc").as_uri()]


# -- the attack, whole -----------------------------------------------------------------------


async def ended(world: Live, job_id: str) -> dict[str, Any]:
    answer = await world.client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 20})
    job: dict[str, Any] = answer.json()
    return job


async def test_a_job_that_slipped_in_fails_and_copies_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard at the door is taken out: the one behind it must hold by itself."""
    monkeypatch.chdir(tmp_path)
    open_door = "lucius.app.runtime.ingress_policy"
    monkeypatch.setattr(open_door, lambda settings, served: Settings.ingress_policy(settings))
    (tmp_path / "doc.txt").write_text("a document")
    (tmp_path / "data").mkdir()
    async with live(tmp_path / "data", services=packaged()) as world:
        (tmp_path / "data/keys.json").write_text(json.dumps({"keys": []}))
        reads = await world.accepted(
            input_ref=(tmp_path / "data/keys.json").as_uri(),
            output_ref=(tmp_path / "stolen.txt").as_uri(),
        )
        stolen = await ended(world, reads)
        assert (stolen["state"], stolen["error_code"]) == ("FAILED_FINAL", "REFERENCE_REFUSED")
        writes = await world.accepted(
            input_ref=(tmp_path / "doc.txt").as_uri(),
            output_ref=(tmp_path / "data/keys.json").as_uri(),
        )
        written = await ended(world, writes)
    assert not (tmp_path / "stolen.txt").exists()
    assert json.loads((tmp_path / "data/keys.json").read_text()) == {"keys": []}
    assert "keys.json" not in str(written["final_output"])


async def test_an_honest_job_reads_and_writes_beside_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc.txt").write_text("a document")
    async with live(tmp_path / ".lucius", services=packaged()) as world:
        job_id = await world.accepted(
            input_ref=(tmp_path / "doc.txt").as_uri(),
            output_ref=(tmp_path / "out.txt").as_uri(),
        )
        job = await ended(world, job_id)
        assert job["state"] == "SUCCEEDED", job
    assert "a document" in (tmp_path / "out.txt").read_text()
