"""A directory that is not open to jobs is refused by its name and the settings that open it."""

from pathlib import Path

import pytest

from lucius.adapters.workspaces.local import LocalWorkspace
from lucius.core.errors import WorkspaceRefusedError


async def test_the_refusal_names_the_directory_and_the_settings(tmp_path: Path) -> None:
    workspace = LocalWorkspace(
        tmp_path / "jobs", readable=[tmp_path / "in"], writable=[tmp_path / "out"]
    )
    elsewhere = tmp_path / "private" / "in.pdf"
    said = (
        f"{elsewhere.as_uri()} is not open to jobs: the directory {elsewhere.parent} is not below one of"
        " LUCIUS_INPUT_ROOTS (to read) or LUCIUS_OUTPUT_ROOTS (to write)"
    )
    with pytest.raises(WorkspaceRefusedError) as reading:
        await workspace.read(elsewhere.as_uri())
    with pytest.raises(WorkspaceRefusedError) as writing:
        await workspace.write(elsewhere.as_uri(), b"x")
    assert str(reading.value) == str(writing.value) == said
