"""`lucius ledger prune` counts, asks, spares what nobody has decided about, and then deletes."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.cli import ledger as commands
from lucius.cli.main import main
from lucius.core.decide import decide
from lucius.core.inputs import CancelRequested, Input
from lucius.core.job import Job
from tests.conformance.jobs import Made, at, failure_of, make


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two jobs that were cancelled long ago, and one that failed and waits for a decision."""
    asyncio.run(_filled(tmp_path / "ledger.db"))
    return tmp_path


async def _filled(path: Path) -> None:
    ledger = await SqliteLedger.open(path)
    failing = make("failed", released=True)
    stories: list[tuple[Made, Input]] = [(make(n), CancelRequested()) for n in range(2)]
    for made, last in [*stories, (failing, failure_of(failing.job))]:
        await ledger.create(made.claim, made.job, made.events)
        decision = decide(made.job, last, at(1))
        await ledger.save(decision.job, made.job.version, decision.events)
    await ledger.close()


def prune(data: Path, *words: str, typed: str | None = None) -> Result:
    given = ["ledger", "prune", "--older-than", "1d", "--data", str(data), *words]
    return CliRunner().invoke(main, given, input=typed)


def left(data: Path) -> list[Job]:
    async def read() -> list[Job]:
        from lucius.ports.ledger import JobQuery

        ledger = await SqliteLedger.open_readonly(data / "ledger.db")
        try:
            return list((await ledger.list(JobQuery())).jobs)
        finally:
            await ledger.close()

    return asyncio.run(read())


def test_a_script_must_say_yes(data: Path) -> None:
    result = prune(data)
    assert result.exit_code == 2
    assert "2 jobs would be deleted for good; add --yes" in result.stderr
    assert len(left(data)) == 3


def test_with_yes_it_deletes_and_spares_what_is_in_the_dead_letter_view(data: Path) -> None:
    result = prune(data, "--yes")
    assert (result.exit_code, result.stdout) == (0, "2 jobs deleted\n")
    assert [job.in_dlq for job in left(data)] == [True]


@pytest.mark.parametrize(("typed", "code", "kept"), [("n\n", 1, 3), ("\n", 1, 3), ("y\n", 0, 1)])
def test_a_person_is_asked(
    data: Path, monkeypatch: pytest.MonkeyPatch, typed: str, code: int, kept: int
) -> None:
    monkeypatch.setattr(commands, "is_interactive", lambda: True)
    result = prune(data, typed=typed)
    assert result.exit_code == code
    assert "delete 2 jobs and their workspaces for good?" in result.stderr
    assert len(left(data)) == kept


def test_a_dry_run_only_counts_while_the_server_writes(data: Path) -> None:
    async def beside_a_server() -> Result:
        server = await SqliteLedger.open(data / "ledger.db")
        try:
            return await asyncio.to_thread(prune, data, "--dry-run", "--json")
        finally:
            await server.close()

    result = asyncio.run(beside_a_server())
    assert json.loads(result.stdout) == {"prunable": 2}
    assert len(left(data)) == 3


def test_where_there_is_nothing_to_delete_nobody_is_asked(data: Path) -> None:
    prune(data, "--yes")
    result = prune(data)
    assert (result.exit_code, result.stdout) == (0, "0 jobs deleted\n")
