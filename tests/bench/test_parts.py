"""Parts of the benchmark can be run alone, and files are made where nothing was just removed."""

from pathlib import Path

import pytest

from bench.__main__ import PARTS, PEERS, chosen_parts
from bench.disk import keep_apart, new_folder_us


def test_no_name_chooses_every_part() -> None:
    assert chosen_parts(["--quick"]) == list(PARTS)


def test_names_choose_their_parts() -> None:
    assert chosen_parts(["committed", "kit", "--quick"]) == ["committed", "kit"]


def test_a_peer_runs_only_where_it_is_named() -> None:
    assert "restate" not in chosen_parts([])
    assert chosen_parts(["restate"]) == ["restate"]


async def test_a_peer_that_is_not_installed_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCH_RESTATE", raising=False)
    with pytest.raises(SystemExit, match="restate-sdk"):
        await PEERS["restate"](tmp_path)


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(SystemExit, match="no such part: kitt"):
        chosen_parts(["kitt"])


def test_folders_are_made_in_a_place_that_is_kept_apart(tmp_path: Path) -> None:
    keep_apart(tmp_path)
    assert new_folder_us(tmp_path) > 0
    assert any(tmp_path.iterdir())
