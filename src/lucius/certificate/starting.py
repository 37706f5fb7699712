"""How the service under examination is started: by its name, by a command, or by somebody else."""

import os
import shlex
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

from lucius.certificate.checks.process import DRAIN_SECONDS
from lucius.certificate.examined import Folders
from lucius.certificate.examinee import ElsewhereExaminee, Examinee, ProcessExaminee
from lucius.certificate.gateway import ExamGateway
from lucius.machine import python_command

SLOTS: Final = 16
MARGIN: Final = 0.5
"""Seconds that the delay of slow work is longer than it says."""


def given(folders: Folders, url: str) -> dict[str, str]:
    """The settings of the service under examination: where it pulls, reads and writes."""
    return {
        "LUCIUS_URL": url,
        "LUCIUS_API_KEY": "certificate",
        "LUCIUS_DATA_DIR": str(folders.root / "data"),
        "LUCIUS_WORKSPACE_URL": folders.workspace.as_uri(),
        "LUCIUS_INPUT_ROOTS": str(folders.input),
        "LUCIUS_OUTPUT_ROOTS": str(folders.output),
        "LUCIUS_DRAIN_SECONDS": f"{DRAIN_SECONDS:g}",
        "LUCIUS_LOG_FORMAT": "text",
    }


def environment(folders: Folders, url: str) -> dict[str, str]:
    """Ours, with the folders of the exams in place of the user's."""
    return {**os.environ, **given(folders, url)}


class NamedStarter:
    """`lucius service run MODULE:NAME --url`, where fault injection can make any step slow."""

    alone = True
    delays = True

    def __init__(self, name: str, folders: Folders, slow_seconds: float) -> None:
        self._name = name
        self._folders = folders
        self._delay = slow_seconds + MARGIN
        self._numbers = count(1)

    def make(self, gateway: ExamGateway, *, slow: bool) -> Examinee:
        words = python_command("lucius.cli.main", "service", "run", self._name)
        words += ["--url", gateway.url, "--slots", str(SLOTS)]
        words += ["--chaos", f"delay={self._delay:g}s"] if slow else []
        return _process(
            words, environment(self._folders, gateway.url), self._folders, self._numbers
        )


class CommandStarter:
    """Any program that pulls from LUCIUS_URL."""

    alone = True
    delays = False

    def __init__(self, command: str, folders: Folders) -> None:
        self._words = shlex.split(command)
        self._folders = folders
        self._numbers = count(1)

    def make(self, gateway: ExamGateway, *, slow: bool) -> Examinee:
        return _process(
            self._words, environment(self._folders, gateway.url), self._folders, self._numbers
        )


class ElsewhereStarter:
    """Somebody starts it, and points it at the gateway."""

    alone = False
    delays = False

    def make(self, gateway: ExamGateway, *, slow: bool) -> Examinee:
        return ElsewhereExaminee()


def _process(
    words: Sequence[str], env: Mapping[str, str], folders: Folders, numbers: "count[int]"
) -> ProcessExaminee:
    return ProcessExaminee(words, env, folders.root / f"service-{next(numbers)}.log")
