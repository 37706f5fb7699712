"""Tab in a real bash: commands, options, files, states, request types and ids."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.cli.server import Server
from tests.cli.test_commands import SUBMIT
from tests.cli.up import clean_environment

BASH = shutil.which("bash")
SCRIPT = """
eval "$(_LUCIUS_COMPLETE=bash_source lucius)"
COMP_WORDS=("$@")
COMP_CWORD=$(( $# - 1 ))
_lucius_completion lucius
printf '%s\\n' "${COMPREPLY[@]}"
"""
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash here")


def offered(folder: Path, url: str, *words: str) -> list[str]:
    assert BASH is not None
    done = subprocess.run(
        [BASH, "-c", SCRIPT, "bash", "lucius", *words],
        cwd=folder,
        env=clean_environment(LUCIUS_URL=url),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_commands_options_and_states_are_completed_without_a_server(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    assert offered(tmp_path, nobody, "submit-") == ["submit-many"]
    assert {"list", "cancel", "redrive"} <= set(offered(tmp_path, nobody, "jobs", ""))
    assert "--state" in offered(tmp_path, nobody, "jobs", "--st")
    paused = offered(tmp_path, nobody, "jobs", "--state", "PAUS")
    assert sorted(paused) == ["PAUSED", "PAUSING"]
    assert offered(tmp_path, nobody, "job", "show", "") == [], "nobody answers, nothing is offered"


def test_types_and_ids_are_those_of_the_server(
    server: Server, shell: Shell, tmp_path: Path
) -> None:
    job_id = shell.json(*SUBMIT)["jobId"]
    assert offered(tmp_path, server.url, "submit", "--type", "OCR") == ["OCR->EMBEDDING"]
    assert offered(tmp_path, server.url, "job", "show", "") == ["last", job_id]
    assert offered(tmp_path, server.url, "why", "la") == ["last"]
    assert offered(tmp_path, server.url, "dlq", "dismiss", job_id[:4]) == [job_id]


def test_files_are_left_to_the_shell(tmp_path: Path) -> None:
    (tmp_path / "contract.pdf").write_bytes(b"%PDF")
    source = subprocess.run(
        ["lucius"],
        cwd=tmp_path,
        env=clean_environment(
            _LUCIUS_COMPLETE="bash_complete", COMP_WORDS="lucius submit --input con", COMP_CWORD="3"
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert source.stdout == "file,con\n", source.stderr
