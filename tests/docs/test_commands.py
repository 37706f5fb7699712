"""Every `lucius` command that the README, the pages and the changelog show can be typed as it stands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lucius.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINE = re.compile(r"^(?: {4}|\$ )?(?:[A-Z_]+=\S* )*(?:\S*/)?lucius ([a-z-].*)$", re.MULTILINE)
INLINE = re.compile(r"`lucius ([a-z][^`]*)`")
ENDS_AT = {"#", "|", ">", "&", "&&", ";", "..."}


def words_of(command: str) -> tuple[str, ...]:
    """Up to a comment or a pipe, with what is optional."""
    words = shlex.split(re.sub(r"[][](?=\s|-|$)", "", command), comments=True)
    return tuple(words[: next((n for n, word in enumerate(words) if word in ENDS_AT), None)])


def shown(page: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, ...]]:
    return map(words_of, pattern.findall(page.replace("\\\n", " ")))


def mistake(words: tuple[str, ...], *, whole: bool) -> str | None:
    """What the command line finds wrong before it does anything. Files and values are not looked at.

    `whole`: nothing is left out. In a sentence a command may be named without its arguments.
    """
    command: click.Command = main
    args = list(words)
    with click.Context(main, info_name="lucius") as context:
        while isinstance(command, click.Group) and args and not args[0].startswith("-"):
            found = command.get_command(context, args[0])
            if found is None:
                return f"there is no command {args[0]}"
            command, args = found, args[1:]
        try:
            command.make_context(command.name, args, parent=context)
        except click.NoSuchOption as error:
            return error.format_message()
        except click.UsageError as error:
            value = isinstance(error, click.BadParameter)
            missing = isinstance(error, click.MissingParameter)
            return error.format_message() if whole and (missing or not value) else None
    return None


def found_in(pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    return sorted({words for page in PAGES for words in shown(page.read_text("utf-8"), pattern)})


@pytest.mark.parametrize("words", found_in(LINE), ids=" ".join)
def test_a_command_in_a_block_can_be_typed(words: tuple[str, ...]) -> None:
    assert mistake(words, whole=True) is None


@pytest.mark.parametrize("words", found_in(INLINE), ids=" ".join)
def test_a_command_in_a_sentence_is_one(words: tuple[str, ...]) -> None:
    assert mistake(words, whole=False) is None


@pytest.mark.parametrize(
    "wrong", ["jbos", "job shwo last", "submit --tpye X", "job show", "verify now please"]
)
def test_a_slip_is_found(wrong: str) -> None:
    assert mistake(words_of(wrong), whole=True) is not None


def test_the_pages_show_commands() -> None:
    assert len(found_in(LINE)) > 50
    assert len(found_in(INLINE)) > 50
