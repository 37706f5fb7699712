"""The samples file: what it may say, and how it is refused."""

from pathlib import Path

import pytest

from lucius.certificate.samples import Samples, SamplesError, read_samples


def read(folder: Path, text: str) -> Samples:
    (folder / "certificate.yaml").write_text(text)
    return read_samples(folder / "certificate.yaml")


def test_a_case_has_what_the_sample_that_works_has_unless_it_names_its_own(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("in")
    (tmp_path / "long.txt").write_text("long")
    found = read(
        tmp_path,
        """
input: in.txt
payload: {marks: 2}
previous: {ocr: in.txt}
slow: {input: long.txt, seconds: 8}
poison: {payload: {marks: x}}
outputs: false
probe: [python, probe.py]
""",
    )
    assert found.works.payload == {"marks": 2}
    assert found.slow is not None
    assert (found.slow.input, found.slow.payload) == (tmp_path / "long.txt", {"marks": 2})
    assert found.slow.previous == {"ocr": tmp_path / "in.txt"}
    assert found.slow_seconds == 8
    assert found.poison is not None
    assert (found.poison.input, found.poison.payload) == (tmp_path / "in.txt", {"marks": "x"})
    assert (found.retryable, found.outputs, found.probe) == (None, False, ("python", "probe.py"))


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Samples()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("payloads: {}", "payloads: is not known; known are input, payload"),
        ("slow: {seconds: 2, speed: 3}", "slow.speed: is not known"),
        ("slow: 5", "slow: must be a mapping"),
        ("slow: {seconds: 400}", "slow.seconds: must be a number from 1 to 30"),
        ("input: nowhere.txt", "input: 'nowhere.txt' is no file beside the samples"),
        ("poison: {input: 3}", "poison.input: 3 is no file"),
        ("previous: [a]", "previous: must be a mapping"),
        ("outputs: maybe", "outputs: must be true or false"),
        ("probe: count", "probe: must be a list of words"),
        ("- a list", "must be a mapping with input"),
        ("{", "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SamplesError, match=named):
        read(tmp_path, text)
