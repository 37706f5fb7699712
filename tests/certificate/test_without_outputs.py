"""Services without outputs: their effects are counted by the probe that they declare."""

import sys
from pathlib import Path

import pytest

from lucius.dev.certificate.checks.effects import expect_same
from lucius.dev.certificate.exam import BrokenError, ExamGateway, NotApplicableError
from lucius.dev.certificate.examinee import ElsewhereExaminee, Examined, Folders, Patience, Samples
from lucius.dev.certificate.trial import Trial

COUNT = "import sys; print(open(sys.argv[1]).read().split().count(sys.argv[2]))"


def trial(folder: Path, *probe: str) -> Trial:
    def none_fresh() -> None:
        raise AssertionError

    return Trial(
        Examined("mail", "MAIL", outputs=False),
        Samples(probe=probe),
        Folders(folder),
        Patience(),
        ExamGateway("mail"),
        ElsewhereExaminee(),
        None,
        none_fresh,  # type: ignore[arg-type]
        {},
    )


async def test_the_probe_counts_the_effects_of_one_key(tmp_path: Path) -> None:
    sent = tmp_path / "sent.log"
    sent.write_text("")
    looking = trial(tmp_path, sys.executable, "-c", COUNT, str(sent), "{effect_key}")
    exam = looking.hand()
    await looking.expect_no_effect(exam, "before anything was done")
    sent.write_text(f"{exam.directive['effect_key']}\n")
    once = await looking.effect(exam)
    with pytest.raises(BrokenError, match="there is an effect too early"):
        await looking.expect_no_effect(exam, "too early")
    sent.write_text(f"{exam.directive['effect_key']}\n" * 2)
    with pytest.raises(BrokenError, match="applied again"):
        await expect_same(looking, exam, once, "by a test")


async def test_without_a_probe_the_reason_names_it(tmp_path: Path) -> None:
    looking = trial(tmp_path)
    with pytest.raises(NotApplicableError, match="`probe` in the samples"):
        await looking.effect(looking.hand())


@pytest.mark.parametrize("code", ["print('many')", "raise SystemExit(3)"])
async def test_a_probe_that_prints_no_number_is_named(tmp_path: Path, code: str) -> None:
    looking = trial(tmp_path, sys.executable, "-c", code)
    with pytest.raises(BrokenError, match="instead of a number"):
        await looking.effect(looking.hand())
