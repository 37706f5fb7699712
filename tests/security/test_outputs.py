"""Outputs of a running server: nobody's file is replaced, and no job's output by another's."""

from pathlib import Path

import pytest

from tests.api.live import live
from tests.security.test_file_references import ended
from tests.services.stage import packaged


async def test_a_job_replaces_no_file_that_lucius_did_not_write_unless_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc.txt").write_text("a document")
    (tmp_path / ".bashrc").write_text("umask 077")
    given = {
        "input_ref": (tmp_path / "doc.txt").as_uri(),
        "output_ref": (tmp_path / ".bashrc").as_uri(),
    }
    async with live(tmp_path / ".lucius", services=packaged()) as world:
        refused = await ended(world, await world.accepted(**given))
        assert (refused["state"], refused["error_code"]) == ("FAILED_FINAL", "OUTPUT_EXISTS")
        assert "--overwrite" in refused["error_message"]
        assert (tmp_path / ".bashrc").read_text() == "umask 077"
        told = await ended(world, await world.accepted(**given, overwrite=True))
        assert told["state"] == "SUCCEEDED"
    assert "a document" in (tmp_path / ".bashrc").read_text()


async def test_two_jobs_with_one_place_for_their_output_have_one_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = (tmp_path / "out.txt").as_uri()
    for name in ("first", "second"):
        (tmp_path / name).write_text(f"the {name} document")
    async with live(tmp_path / ".lucius", services=packaged()) as world:
        jobs = [
            await world.accepted(input_ref=(tmp_path / name).as_uri(), output_ref=output)
            for name in ("first", "second")
        ]
        ends = [await ended(world, job_id) for job_id in jobs]
    codes = {job["error_code"]: job["jobId"] for job in ends}
    assert set(codes) == {None, "OUTPUT_EXISTS"}
    winner = ("first", "second")[jobs.index(codes[None])]
    assert f"the {winner} document" in (tmp_path / "out.txt").read_text()
