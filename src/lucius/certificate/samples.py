"""What a service is fed: a document and a payload that work, and others that fail or take long."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from lucius.core.errors import LuciusError

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
