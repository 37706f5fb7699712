"""The Temporal server of `--stack temporal` has no authentication: it is not started where others log in."""

import os
import pwd
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lucius.app import temporal
from lucius.app.lifecycle import LOOPBACK, listen
from lucius.app.temporal import other_people
from lucius.cli.main import main

ME = os.geteuid()
BASH, NONE = "/bin/bash", "/usr/sbin/nologin"


def account(
    name: str, uid: int, shell: str = BASH, home: str = "/nonexistent"
) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", home, shell))


class Machine:
    """Its accounts, those without a password, and the users of its processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        monkeypatch.delenv("SUDO_UID", raising=False)
        self.has([])

    def has(
        self,
        accounts: list[pwd.struct_passwd],
        locked: tuple[str, ...] = (),
        running: tuple[int, ...] = (ME,),
    ) -> None:
        self._patch.setattr(pwd, "getpwall", lambda: [account("me", ME), *accounts])
        self._patch.setattr(temporal, "_locked", lambda: set(locked))
        self._patch.setattr(temporal, "_running", lambda: set(running))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_people_who_can_log_in_are_others(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/authorized_keys").touch()
    machine.has([account("ann", 4001), account("bob", 4002, home=str(tmp_path))], locked=("bob",))
    assert other_people() == {"ann", "bob"}


def test_this_user_root_daemons_and_locked_accounts_are_none(machine: Machine) -> None:
    machine.has(
        [
            account("root", 0),
            account("postgres", 105),
            account("nobody", 65534),
            account("service", 4001, shell=NONE),
            account("image", 4002),
        ],
        locked=("image",),
        running=(0, 105, 65534, ME),
    )
    assert other_people() == set()


def test_people_whose_processes_run_are_others_whatever_their_account(machine: Machine) -> None:
    machine.has([account("image", 4002)], locked=("image",), running=(ME, 4002, 4003))
    assert other_people() == {"image", "4003"}


def test_the_user_behind_sudo_is_no_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has([account("ann", 4001)], running=(ME, 4001))
    monkeypatch.setenv("SUDO_UID", "4001")
    assert other_people() == set()


def test_files_of_the_system_are_read(tmp_path: Path) -> None:
    (tmp_path / "shadow").write_text("ann:$y$hash:1::\nimage:!:1::\ndaemon:*:1::\n\nodd\n")
    assert temporal._locked(tmp_path / "shadow") == {"image", "daemon"}
    assert temporal._locked(tmp_path / "missing") == set()
    assert ME in temporal._running()


def up(folder: Path, *words: str) -> Result:
    """On a port that is taken, so that nothing is started in any case."""
    with closing(listen(LOOPBACK, 0)) as taken:
        port = str(taken.getsockname()[1])
        given = ["up", "--no-services", "--port", port, "--data", str(folder / "data"), *words]
        return CliRunner().invoke(main, given)


@pytest.mark.slow  # it needs Azurite
def test_the_stack_is_refused_in_one_line_unless_that_is_accepted(
    machine: Machine, tmp_path: Path
) -> None:
    machine.has([account("ann", 4001)])
    refused = up(tmp_path, "--stack", "temporal")
    assert refused.exit_code == 1
    (line,) = refused.stderr.splitlines()
    assert "(ann)" in line
    assert "--shared-machine" in line
    assert not (tmp_path / "data").exists()
    for words in (("--stack", "temporal", "--shared-machine"), ("--stack", "azure")):
        assert "cannot listen" in up(tmp_path, *words).stderr
    machine.has([])
    assert "cannot listen" in up(tmp_path, "--stack", "temporal").stderr
