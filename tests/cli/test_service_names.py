"""A service without a name is refused at the start; one that no job can reach is warned about."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.configs.files import FileConfig
from lucius.app.services import check_services
from lucius.app.settings import load_settings
from lucius.app.stacks import die_with_parent
from lucius.app.starting import doers_in, look_at_settings, unreached
from lucius.platform import Service, ServiceError, SyncTask
from lucius.platform import service as decorated
from tests.cli.up import LUCIUS, clean_environment, up

SERVICES = """
from lucius.platform import Service

class Nameless(Service):
    step_types = ("OCR",)

class Idle(Service):
    name = "idle"
    step_types = ("OCCR",)

    async def execute(self, task): ...
"""
DOERS = doers_in(FileConfig().catalog())
IDLE = "no protocol has the step type OCCR of the service idle (did you mean OCR?), so no job reaches it"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SERVICES)
    return tmp_path


def reads(task: SyncTask) -> None: ...


class Unwritten(Service):
    def __init__(self, name: str, *step_types: str, **fields: Any) -> None:
        self.name, self.step_types = name, step_types
        for field, value in fields.items():
            setattr(self, field, value)


class Named(Unwritten):
    def execute(self, task: SyncTask) -> None: ...


@pytest.mark.parametrize(
    ("service", "message"),
    [
        (Named("", "OCR"), "Named has no name: write `name"),
        (Named("ocr"), "Named has no step types: write `step"),
        (Named("ocr", step_types="OCR"), "Named has a text as step_types: write .*'OCR',"),
        (Unwritten("ocr", "OCR"), "Unwritten has no execute"),
        (Named("ocr", "OCR", isolation="proces"), "Named has isolation = 'proces': .* 'process'"),
        (Named("ocr", "OCR", time_limit=120), "Named has time_limit = 120: it takes a timedelta"),
        (Named("ocr", "OCR", cancel_grace=5.0), "Named has cancel_grace = 5.0: it takes a timed"),
        (Named("ocr", "OCR", processes=0), "Named has processes = 0: it takes 1 or more"),
        (decorated("", "OCR")(reads), "reads has no name"),
    ],
)
def test_a_service_that_cannot_do_what_its_class_says_is_refused(
    service: Service, message: str
) -> None:
    with pytest.raises(ServiceError, match=f"test_service_names:{message}"):
        check_services([service])


def test_a_step_type_that_no_protocol_has_is_named() -> None:
    assert list(unreached(Named("idle", "OCR", "OCCR"), DOERS))[1] == IDLE
    (far,) = unreached(Named("idle", "ZZZ"), DOERS)
    assert far == "no protocol has the step type ZZZ of the service idle, so no job reaches it"


def test_so_is_a_service_of_another_name_than_protocols_have() -> None:
    (said,) = unreached(Named("reader", "OCR"), DOERS)
    assert said == (
        "protocols have OCR done by ocr, not by a service named reader, so no job reaches it"
    )


def test_a_service_that_protocols_name_is_fine() -> None:
    assert list(unreached(Named("ocr", "OCR"), DOERS)) == []


async def test_a_process_on_a_bus_looks_at_the_protocols_of_its_own_settings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await look_at_settings(load_settings({}), Named("idle", "OCCR"))
    (said,) = [each.message for each in caplog.records if each.name == "lucius"]
    assert said == (
        f"{IDLE}: add a protocol file to LUCIUS_PROTOCOLS, which is packaged, unless the server has"
        " others than this process"
    )


def lucius(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [LUCIUS, *words],
        cwd=folder,
        env=clean_environment(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )


@contextmanager
def started(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    with lucius(folder, *words) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.xdist_group("stacks")
@pytest.mark.parametrize(
    "words",
    [
        ("up", "--no-services", "--port", "0", "--service", "mine:Nameless"),
        ("service", "run", "mine:Nameless", "--url", "http://127.0.0.1:9"),
    ],
    ids=["up", "service run"],
)
def test_a_process_with_a_nameless_service_does_not_start(
    folder: Path, words: tuple[str, ...]
) -> None:
    with started(folder, *words) as process:
        _, said = process.communicate(timeout=120)
        assert (process.returncode, "mine:Nameless has no name" in said) == (1, True), said


@pytest.mark.xdist_group("stacks")
def test_processes_with_a_service_that_no_job_reaches_say_so_and_start(folder: Path) -> None:
    with up(folder, "--no-services", "--service", "mine:Idle") as server:
        assert f"{IDLE}: add a protocol file to LUCIUS_PROTOCOLS, which is packaged" in server.log()
        run = ("service", "run", "mine:Idle", "--url", server.url)
        with started(folder, *run) as process:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            said = next(line for line in lines if IDLE in line)
            assert "add a protocol file to the server's LUCIUS_PROTOCOLS" in said
