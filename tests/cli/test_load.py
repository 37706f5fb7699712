"""`lucius load`: what it refuses before anything is sent, and how it reports."""

import asyncio

import pytest
from click.testing import CliRunner

from lucius.cli.load import driven, report
from lucius.cli.main import main
from lucius.dev.load import JobEnd, LoadPlan, LoadTally

JOB = ("--type", "OCR", "--input", "in.pdf")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --type and --input for a server, or MODULE:NAME for a service"),
        (("--type", "OCR"), "give --type and --input"),
        ((*JOB, "--rate", "5", "--concurrency", "2"), "--rate or --concurrency, not both"),
        ((*JOB, "--rate", "0"), "--rate"),
        ((*JOB, "--rate", "nan"), "--rate: nan is no number to count with"),
        ((*JOB, "--seconds", "inf"), "--seconds: inf is no number to count with"),
        ((*JOB, "--jobs", "none"), "--jobs"),
        ((*JOB, "--tenants", "acme=much"), "must be NAME=NUMBER"),
        ((*JOB, "--failures", "mising=0.1"), "'mising' is no failure"),
        ((*JOB, "--failures", "poison=0.1"), "needs a payload that fails: --poison"),
        ((*JOB, "--payload", "{"), "is not JSON"),
        (("x:Y", "--failures", "cancel=0.1"), "'cancel' is no failure that can be asked for"),
    ],
)
def test_wrong_usage_is_explained(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, ["load", *words])
    assert (result.exit_code, said in result.stderr) == (2, True), result.output


def test_a_server_that_is_not_there_is_said_once() -> None:
    result = CliRunner().invoke(main, ["load", *JOB, "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert result.stderr.count("the connection was refused") == 1


async def test_who_ends_it_sees_what_came_of_it_so_far() -> None:
    class Endless:
        begun = asyncio.Event()

        async def run(self, tenant: str, kind: str) -> JobEnd:
            if self.begun.is_set():
                await asyncio.Event().wait()
            self.begun.set()
            return JobEnd("SUCCEEDED")

    target = Endless()
    running = asyncio.create_task(driven(target, LoadPlan(jobs=9), as_json=True))
    await target.begun.wait()
    await asyncio.sleep(0)
    running.cancel()
    tally, seconds = await running
    assert (tally.interrupted, tally.succeeded, tally.started) == (True, 1, 2)
    assert "  interrupted: 1 had not ended" in report(tally, seconds)
    assert tally.document(seconds)["interrupted"] is True


def test_the_report_has_throughput_histogram_and_errors() -> None:
    tally = LoadTally()
    for outcome in ("SUCCEEDED", "SUCCEEDED", "TENANT_SATURATED"):
        tally.start()
        tally.end(JobEnd(outcome), 0.015)
    text = "\n".join(report(tally, 1.5))
    assert "3 of 3 ended, 2.0/s, 1 errors  p50 15 ms" in text
    assert "<= 20 ms        3  ████" in text
    assert "1 TENANT_SATURATED" in text
