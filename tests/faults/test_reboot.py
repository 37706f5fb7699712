"""Outputs after kills and reboots, seen from outside: `lucius up`, its services' process, and the files.

A reboot is another boot id; a loss of power also takes what the test deletes. Nothing here knows how LUCIUS
keeps outputs until they are on disk.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from lucius.client import BlockingClient
from tests.cli.up import LUCIUS, Up, clean_environment, up
from tests.soon import soon

BOOTED = """
import os, pathlib

real = pathlib.Path.read_text


def read_text(path, *words, **options):
    kernel = str(path) == "/proc/sys/kernel/random/boot_id"
    return os.environ["BOOT"] if kernel else real(path, *words, **options)


pathlib.Path.read_text = read_text
"""
SERVICE = """
from lucius.platform import Output, Service, Task


class Writer(Service):
    name = "writer"
    step_types = ("WRITE",)

    def execute(self, task: Task) -> Output:
        task.stage("output.bin", task.payload["text"].encode())
        return Output()
"""
PROTOCOL = """
step_types: {WRITE: {service: writer}}
protocols: [{request_type: WRITE, protocol_id: write_v1, steps: [WRITE]}]
"""


class Machine:
    """One data directory over several runs of the operating system."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.out.mkdir()
        (folder / "boot").mkdir()
        (folder / "boot" / "sitecustomize.py").write_text(BOOTED)
        (folder / "writer.py").write_text(SERVICE)
        (folder / "write.yaml").write_text(PROTOCOL)
        self.boots = 1

    def reboot(self) -> None:
        self.boots += 1

    @property
    def environment(self) -> dict[str, str]:
        return {
            "BOOT": f"boot {self.boots}",
            "PYTHONPATH": str(self.folder / "boot"),
            "LUCIUS_OUTPUT_ROOTS": str(self.out),
            "LUCIUS_PROTOCOLS": "write.yaml",
        }

    @contextmanager
    def serving(self) -> Iterator[tuple[Up, BlockingClient]]:
        words = ("--no-services", "--service", "writer:Writer")
        with (
            up(self.folder, *words, **self.environment) as server,
            BlockingClient(server.url) as client,
        ):
            yield server, client

    def start_and_stop(self) -> None:
        with self.serving() as (server, _):
            assert server.stop() == 0, server.log()

    def place(self, name: str = "a.bin") -> Path:
        return self.out / name

    def write(self, client: BlockingClient, text: str, name: str = "a.bin") -> str:
        """A job that has succeeded with this output."""
        command = {
            "tenant_id": "acme",
            "request_type": "WRITE",
            "input_ref": "s3://bucket/in",
            "output_ref": self.place(name).as_uri(),
            "payload": {"text": text},
            "schema_version": "v1",
            "overwrite": True,
        }
        job = client.wait(str(client.submit(command).jobId))
        assert job.state == "SUCCEEDED", job
        assert self.place(name).read_text() == text
        return str(job.jobId)

    def verify(self) -> list[tuple[str, str]]:
        found = subprocess.run(
            [LUCIUS, "verify", "--json"],
            cwd=self.folder,
            env=clean_environment(**self.environment),
            capture_output=True,
            text=True,
            check=False,
        )
        return [(each["kind"], each["subject"]) for each in json.loads(found.stdout)["drift"]]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def kill_services(server: Up) -> None:
    """And wait until others have taken their place."""

    def children() -> list[str]:
        return Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()

    (pid,) = children()
    os.kill(int(pid), signal.SIGKILL)
    assert soon(lambda: pid not in children() and len(children()) == 1)


# -- an older output never takes the place of a newer one ---------------------------------------


def test_an_older_output_does_not_come_back_with_a_reboot_or_a_loss_of_power(
    machine: Machine,
) -> None:
    """One was overwritten; another was removed and written again, and then lost with the power."""
    with machine.serving() as (server, client):
        machine.write(client, "the first, and longer")
        machine.write(client, "of the first job", "b.bin")
        kill_services(server)
        machine.write(client, "the first")
        machine.place("b.bin").unlink()
        machine.write(client, "of the second job", "b.bin")
        server.kill()
    machine.place("b.bin").unlink()
    machine.reboot()
    machine.start_and_stop()
    assert machine.place().read_text() == "the first"
    assert machine.place("b.bin").read_text() == "of the second job"


# -- what a user removes stays away ------------------------------------------------------------


def test_what_is_removed_after_a_kill_of_the_services_or_an_orderly_stop_does_not_come_back(
    machine: Machine,
) -> None:
    with machine.serving() as (server, client):
        machine.write(client, "read and removed")
        kill_services(server)
        machine.place().unlink()
        machine.write(client, "read and removed later", "b.bin")
        assert server.stop() == 0
    machine.place("b.bin").unlink()
    machine.reboot()
    machine.start_and_stop()
    assert not machine.place().exists()
    assert not machine.place("b.bin").exists()


def test_what_is_removed_after_a_kill_of_all_and_another_start_does_not_come_back(
    machine: Machine,
) -> None:
    with machine.serving() as (server, client):
        machine.write(client, "read and removed")
        server.kill()
    machine.place().unlink()
    machine.start_and_stop()
    machine.reboot()
    machine.start_and_stop()
    assert not machine.place().exists()


# -- a place that cannot be written concerns nobody else ----------------------------------------


def into_a_directory(place: Path) -> None:
    place.unlink()
    place.mkdir()


def into_a_pipe(place: Path) -> None:
    place.unlink()
    os.mkfifo(place)


def folder_into_a_file(place: Path) -> None:
    shutil.rmtree(place.parent)
    place.parent.write_text("in the way")


def folder_into_a_link(place: Path) -> None:
    elsewhere = place.parent.parent.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(place.parent)
    place.parent.symlink_to(elsewhere)


def clear(place: Path) -> None:
    """Of whatever stands in the way of it."""
    for each in (place, place.parent):
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each.exists() or each.is_symlink():
            each.unlink()
    place.parent.mkdir()


SPOILT = {
    f"deep{number}/b.bin": spoil
    for number, spoil in enumerate(
        (into_a_directory, into_a_pipe, folder_into_a_file, folder_into_a_link)
    )
}


def test_places_that_cannot_be_written_are_set_aside_and_named(machine: Machine) -> None:
    with machine.serving() as (server, client):
        machine.write(client, "lost and back")
        lost = {name: machine.write(client, "lost and in the way", name) for name in SPOILT}
        server.kill()
    machine.place().unlink()
    for name, spoil in SPOILT.items():
        spoil(machine.place(name))
    machine.reboot()
    with machine.serving() as (server, client):
        assert machine.place().read_text() == "lost and back"
        log = server.log().splitlines()
        for name, job_id in lost.items():
            (said,) = [each for each in log if str(machine.place(name)) in each]
            assert job_id in said
        check_named(machine, server, client, lost)
        machine.write(client, "others go on", "c.bin")
    for name in SPOILT:
        clear(machine.place(name))
    machine.start_and_stop()
    for name in SPOILT:
        assert machine.place(name).read_text() == "lost and in the way"
    assert machine.verify() == []


def check_named(machine: Machine, server: Up, client: BlockingClient, lost: dict[str, str]) -> None:
    many = len(lost)
    assert asked(server, "/readyz")["warnings"]["outputs"].startswith(f"{many} lost outputs")
    with urlopen(f"{server.url}/metrics", timeout=10) as answer:
        assert f"\nlucius_unrestored_outputs {many}.0" in answer.read().decode()
    (of_all,) = client.why().causes
    assert of_all.cause == "OUTPUT_NOT_RESTORED"
    drift = machine.verify()
    for name, job_id in lost.items():
        of_job = client.why_job(job_id)
        assert of_job.cause == "OUTPUT_NOT_RESTORED"
        assert str(machine.place(name)) in of_job.evidence[0].what
        assert job_id in of_job.evidence[0].what
        assert ("output_not_restored", machine.place(name).as_uri()) in drift


def asked(server: Up, path: str) -> Any:
    with urlopen(f"{server.url}{path}", timeout=10) as answer:
        return json.loads(answer.read())


def test_an_output_root_that_is_gone_is_not_made_again(machine: Machine) -> None:
    """Its disk may be mounted later, and would hide what was written instead."""
    with machine.serving() as (server, client):
        machine.write(client, "on a disk that is away")
        server.kill()
    shutil.rmtree(machine.out)
    machine.reboot()
    with machine.serving():
        assert not machine.out.exists()
    machine.out.mkdir()
    machine.start_and_stop()
    assert machine.place().read_text() == "on a disk that is away"


def test_a_place_that_a_later_job_writes_is_wanted_no_more(machine: Machine) -> None:
    with machine.serving() as (server, client):
        machine.write(client, "in the way")
        server.kill()
    into_a_directory(machine.place())
    machine.reboot()
    with machine.serving() as (server, client):
        machine.place().rmdir()
        machine.write(client, "later")
        assert "outputs" not in asked(server, "/readyz")["warnings"]
        server.kill()
    machine.reboot()
    machine.start_and_stop()
    assert machine.place().read_text() == "later"
