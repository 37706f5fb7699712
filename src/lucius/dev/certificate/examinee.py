"""The service under examination: a process that is started, stopped and killed here, or somebody else's."""

import asyncio
import copy
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import yaml

from lucius.app.stacks import die_with_parent
from lucius.core.errors import LuciusError
from lucius.dev.certificate.exam import NotApplicableError

# What a service is fed: a document and a payload that work, and others that fail or take long.

FILE: Final = "certificate.yaml"
TEXT: Final = "LUCIUS certificate: a short text for a service to work on.\n"
POISON: Final = ["this is no payload"]
SLOW_SECONDS: Final = 4.0
_CASES: Final = ("slow", "poison", "retryable", "large")
_CASE_FIELDS: Final = ("input", "payload", "previous")
_TOP_FIELDS: Final = (*_CASE_FIELDS, *_CASES, "outputs", "probe")


class SamplesError(LuciusError):
    """A samples file that cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`input` and `previous` name files; without `input` a short text is the document."""

    input: Path | None = None
    payload: Any = field(default_factory=dict)
    previous: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Samples:
    """`works` succeeds. The others are None where nothing was said about them.

    `slow` takes `slow_seconds` or more. `probe` is a command that prints how often an effect was applied.
    """

    works: Sample = field(default_factory=Sample)
    slow: Sample | None = None
    slow_seconds: float = SLOW_SECONDS
    poison: Sample | None = None
    retryable: Sample | None = None
    large: Sample | None = None
    outputs: bool | None = None
    probe: tuple[str, ...] = ()


def read_samples(path: Path) -> Samples:
    try:
        given = yaml.safe_load(path.read_text("utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SamplesError(f"{path} cannot be read: {error}") from error
    if not isinstance(given, dict):
        raise SamplesError(f"{path}: must be a mapping with {', '.join(_TOP_FIELDS)}")
    return _Reader(path).samples(given)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def samples(self, given: Mapping[str, Any]) -> Samples:
        self._check(given, _TOP_FIELDS, "")
        works = self._sample(given, Sample(), "")
        cases = {name: self._case(given, name, works) for name in _CASES}
        outputs, probe = given.get("outputs"), given.get("probe", [])
        if outputs is not None and not isinstance(outputs, bool):
            raise self._wrong("outputs", "must be true or false")
        if not isinstance(probe, list) or not all(isinstance(word, str) for word in probe):
            raise self._wrong("probe", "must be a list of words: a command and its arguments")
        return Samples(
            works, slow_seconds=self._seconds(given), outputs=outputs, probe=tuple(probe), **cases
        )

    def _case(self, given: Mapping[str, Any], name: str, works: Sample) -> Sample | None:
        found = given.get(name)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise self._wrong(name, f"must be a mapping with {', '.join(_CASE_FIELDS)}")
        more = ("seconds",) if name == "slow" else ()
        self._check(found, (*_CASE_FIELDS, *more), f"{name}.")
        return self._sample(found, works, f"{name}.")

    def _sample(self, given: Mapping[str, Any], base: Sample, at: str) -> Sample:
        previous = given.get("previous")
        if previous is not None and not isinstance(previous, dict):
            raise self._wrong(f"{at}previous", "must be a mapping from step ids to files")
        return Sample(
            self._file(given["input"], f"{at}input") if "input" in given else base.input,
            copy.deepcopy(given.get("payload", base.payload)),
            base.previous
            if previous is None
            else {str(k): self._file(v, f"{at}previous.{k}") for k, v in previous.items()},
        )

    def _file(self, name: Any, at: str) -> Path:
        found = (self._path.parent / str(name)).resolve()
        if not isinstance(name, str) or not found.is_file():
            raise self._wrong(at, f"{name!r} is no file beside the samples")
        return found

    def _seconds(self, given: Mapping[str, Any]) -> float:
        seconds = (given.get("slow") or {}).get("seconds", SLOW_SECONDS)
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 1 <= seconds <= 30
        ):
            raise self._wrong("slow.seconds", "must be a number from 1 to 30")
        return float(seconds)

    def _check(self, given: Mapping[Any, Any], known: tuple[str, ...], at: str) -> None:
        for name in given:
            if name not in known:
                raise self._wrong(f"{at}{name}", f"is not known; known are {', '.join(known)}")

    def _wrong(self, at: str, reason: str) -> SamplesError:
        return SamplesError(f"{self._path}: {at}: {reason}")


# Which service is examined, where its files lie, and how long it may take.


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things may take, in seconds. `slow` is how long slow work takes."""

    ack: float = 5.0
    result: float = 20.0
    quiet: float = 1.0
    slow: float = SLOW_SECONDS

    @property
    def lease(self) -> float:
        """Shorter than slow work, so that it needs heartbeats."""
        return self.slow * 0.6


@dataclass(frozen=True, slots=True)
class Examined:
    """Which service it is. `outputs`: whether its steps leave outputs in the workspace."""

    service: str
    step_type: str
    outputs: bool = True


class Folders:
    """Where inputs, outputs and workspaces of the exams lie."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.input, self.output, self.workspace = (
            root / "input",
            root / "output",
            root / "workspace",
        )
        for folder in (self.input, self.output, self.workspace):
            folder.mkdir(parents=True, exist_ok=True)

    def copied(self, source: Path | None, text: str) -> str:
        target = self.input / f"{uuid4().hex[:8]}-{source.name if source else 'input.txt'}"
        target.write_bytes(source.read_bytes() if source else text.encode())
        return target.as_uri()


LOG_LINES: Final = 15


class Examinee(Protocol):
    async def start(self) -> None: ...

    def terminate(self) -> None:
        """Ask it to end in order (SIGTERM)."""

    async def kill(self) -> None:
        """End it at once (SIGKILL). None is fine too."""

    async def ended(self) -> int:
        """Its exit code, once it has ended."""

    def log(self) -> str:
        """The last lines that it wrote."""


class ProcessExaminee:
    """A command in a process group of its own, so that what it starts ends with it."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._words = words
        self._env = env
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._words,
                env=dict(self._env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )

    def terminate(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    async def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def ended(self) -> int:
        assert self._process is not None, "it was started"
        return await self._process.wait()

    def log(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-LOG_LINES:])


class ElsewhereExaminee:
    """A service that somebody else has started and pointed at the gateway."""

    async def start(self) -> None: ...

    def terminate(self) -> None:
        raise _not_ours()

    async def kill(self) -> None: ...

    async def ended(self) -> int:
        """Nobody would know."""
        await asyncio.Event().wait()
        raise AssertionError

    def log(self) -> str:
        return ""


def _not_ours() -> NotApplicableError:
    return NotApplicableError(
        "the service was not started by the certificate, so it cannot be stopped: give MODULE:NAME or"
        " --command"
    )
