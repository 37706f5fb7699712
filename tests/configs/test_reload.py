"""Protocols are read again when their files change; a bad change leaves the old reading in force."""

import logging
import os
from pathlib import Path

import pytest

from lucius.configs.files import FileConfig

ONE = """
step_types: {A: {service: a}}
protocols:
  - {request_type: ONE, protocol_id: one, steps: [A]}
"""
TWO = ONE + "  - {request_type: TWO, protocol_id: two, steps: [A]}\n"


def write(path: Path, text: str, at: int) -> None:
    """Each write has its own time, however fast the test is."""
    path.write_text(text)
    os.utime(path, ns=(at, at))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "protocols.yaml"
    write(path, ONE, 1)
    return path


async def test_a_change_is_in_force_after_refresh(path: Path) -> None:
    config = FileConfig(path.parent)
    before = config.catalog()
    write(path, TWO, 2)
    assert config.catalog() is before
    assert await config.refresh()
    assert set(config.catalog().protocols) == {"ONE", "TWO"}
    assert config.catalog().version != before.version


async def test_nothing_changed_keeps_the_very_same_reading(path: Path) -> None:
    config = FileConfig(path)
    before = config.catalog()
    assert not await config.refresh()
    assert config.catalog() is before


async def test_the_same_content_written_again_is_no_new_version(path: Path) -> None:
    config = FileConfig(path)
    version = config.catalog().version
    write(path, ONE + "# a remark\n", 2)
    assert not await config.refresh()
    assert config.catalog().version == version


async def test_a_bad_change_is_reported_once_and_not_used(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = FileConfig(path)
    before = config.catalog()
    write(path, TWO.replace("steps: [A]", "steps: [B]"), 2)
    with caplog.at_level(logging.ERROR, "lucius.config"):
        assert not await config.refresh()
        assert not await config.refresh()
    assert config.catalog() is before
    assert "there is no step type B" in str(config.last_error)
    assert len(caplog.records) == 1
    assert str(path) in caplog.text


async def test_a_repaired_file_is_used_and_the_error_forgotten(path: Path) -> None:
    config = FileConfig(path)
    write(path, "protocols: [", 2)
    await config.refresh()
    write(path, TWO, 3)
    assert await config.refresh()
    assert config.last_error is None
    assert "TWO" in config.catalog().protocols


async def test_a_file_that_vanished_is_a_bad_change(path: Path) -> None:
    config = FileConfig(path.parent)
    os.remove(path)
    assert not await config.refresh()
    assert "ONE" in config.catalog().protocols
    assert "no protocol files" in str(config.last_error)
    write(path, ONE, 1)
    assert not await config.refresh()
    assert config.last_error is None


async def test_new_and_removed_files_count_as_changes(path: Path) -> None:
    config = FileConfig(path.parent)
    other = path.parent / "other.yaml"
    write(other, "protocols: [{request_type: TWO, protocol_id: two, steps: [A]}]", 2)
    assert await config.refresh()
    assert "TWO" in config.catalog().protocols
    os.remove(other)
    assert await config.refresh()
    assert "TWO" not in config.catalog().protocols
