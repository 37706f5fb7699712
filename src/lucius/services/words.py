"""Words and sentences, enough of them to compare a question with a text."""

import re
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_BREAK: Final = re.compile(r"(?<=[.!?])\s+|\n\s*\n|(?<=[。！？])|(?<=[a-z][.!?])(?=[A-Z][a-z])")
_ENDING: Final = re.compile(r"(?<=\w{3})(?:ings?|ed|es|s|e)$")
_COMMON: Final = frozenset(
    _WORD.findall(
        "a an and are as at be by did do does for from had has have how i if in is it its long many"
        " may much must of on or that the their then there they this to was were what when where"
        " which who whom whose why will with would"
    )
)

_COUNT: Final = (
    "(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|fifty|hundred|thousand"
    "|million|dozen|half|third|quarter|tenth)"
)
_NUMBER: Final = re.compile(rf"\d|\b{_COUNT}\b", re.IGNORECASE)
_MOMENT: Final = re.compile(
    rf"\d|\b(?:noon|midnight|\w{{3,6}}day|(?:at|after|before|by|until|within) {_COUNT})\b",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"(?<=[^\d.!?] )(?!\w{3,6}day\b)[A-Z][a-z]+")
"""A capital inside of a sentence, but for days, and months after a number."""
_ASKED_FOR: Final = (
    (re.compile(r"\W*who(?:m|se)?\b", re.IGNORECASE), _NAME),
    (re.compile(r"\W*when\b", re.IGNORECASE), _MOMENT),
    (re.compile(r"\W*how (?:much|many|long|big|far|old|soon|quickly)\b", re.IGNORECASE), _NUMBER),
)


def asked_for(prompt: str) -> re.Pattern[str] | None:
    """What an answer has in it, by the English word that the question begins with."""
    return next((kind for word, kind in _ASKED_FOR if word.match(prompt)), None)


def has_words(text: str) -> bool:
    return _WORD.search(text) is not None


def words(text: str) -> list[str]:
    """In lower case, without the commonest ones and without the commonest endings."""
    found = (word.lower() for word in _WORD.findall(text))
    return [_ENDING.sub("", word) for word in found if word not in _COMMON]


def sentences(text: str) -> list[str]:
    parts = (" ".join(part.split()) for part in _BREAK.split(text))
    return [part for part in parts if part]
