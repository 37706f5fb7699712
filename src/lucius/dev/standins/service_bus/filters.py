"""Rules of a subscription: a subset of Service Bus's SQL, and correlation filters.

Supported: properties (`name`, `user.name`, `sys.MessageId` and its like), strings, whole numbers,
`= <> != IN NOT IN IS NULL IS NOT NULL AND OR NOT ( )` and `1=1`. What is missing is unknown, as in
SQL: `step_type NOT IN ('A')` does not take a message without `step_type`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lucius.dev.standins.service_bus.messages import Stored


class FilterError(ValueError):
    """A filter that is not understood here."""


Test = Callable[[Stored], bool | None]
"""None: unknown."""

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+)|(?P<word>[A-Za-z_][\w.]*|\[[^\]]+\])"
    r"|(?P<sign><>|!=|=|\(|\)|,))"
)
_SYSTEM: Final = {
    "messageid": "message_id",
    "label": "subject",
    "subject": "subject",
    "correlationid": "correlation_id",
    "sessionid": "session_id",
    "to": "to",
    "replyto": "reply_to",
    "contenttype": "content_type",
}


@dataclass(frozen=True)
class Rule:
    """One rule: a message is taken if any rule of its subscription matches. `sql` None: correlation."""

    name: str
    sql: str | None = "1=1"
    correlation: Mapping[str, Any] = field(default_factory=dict)
    """Application properties that must be equal."""
    system: Mapping[str, str] = field(default_factory=dict)
    """AMQP's own properties that must be equal, by our names."""

    def test(self) -> Test:
        return self._correlates if self.sql is None else compiled(self.sql)

    def _correlates(self, message: Stored) -> bool:
        return all(message.application.get(k) == v for k, v in self.correlation.items()) and all(
            str(message.system.get(k)) == v for k, v in self.system.items()
        )


def compiled(sql: str) -> Test:
    """Raises FilterError for what is not supported."""
    return _Parser(_tokens(sql)).whole()


def _tokens(sql: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    sql = sql.rstrip()
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        if match is None or match.lastgroup is None:
            raise FilterError(f"not supported in a filter: {sql[at : at + 20]!r}")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def whole(self) -> Test:
        test = self._or()
        if self._at < len(self._tokens):
            raise FilterError(f"not supported in a filter: {self._tokens[self._at][1]!r}")
        return test

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise FilterError("the filter ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, *words: str) -> bool:
        ahead = self._tokens[self._at : self._at + len(words)]
        if [word.upper() for _, word in ahead] != list(words) or ahead[0][0] == "text":
            return False
        self._at += len(words)
        return True

    def _need(self, word: str) -> None:
        if not self._accept(word):
            raise FilterError(f"{word} is missing in the filter")

    def _or(self) -> Test:
        tests = [self._and()]
        while self._accept("OR"):
            tests.append(self._and())
        return tests[0] if len(tests) == 1 else lambda m: _any([test(m) for test in tests])

    def _and(self) -> Test:
        tests = [self._not()]
        while self._accept("AND"):
            tests.append(self._not())
        return (
            tests[0]
            if len(tests) == 1
            else lambda m: _negated(_any([_negated(test(m)) for test in tests]))
        )

    def _not(self) -> Test:
        if self._accept("NOT"):
            inner = self._not()
            return lambda m: _negated(inner(m))
        if self._accept("("):
            grouped = self._or()
            self._need(")")
            return grouped
        return self._comparison()

    def _comparison(self) -> Test:
        left = self._operand()
        if self._accept("IS", "NOT", "NULL"):
            return lambda m: left(m) is not None
        if self._accept("IS", "NULL"):
            return lambda m: left(m) is None
        if self._accept("NOT", "IN"):
            inside = self._among(left)
            return lambda m: _negated(inside(m))
        if self._accept("IN"):
            return self._among(left)
        equal = self._accept("=")
        if not equal and not (self._accept("<>") or self._accept("!=")):
            raise FilterError("a comparison in the filter is not supported")
        right = self._operand()
        return lambda m: _compared(left(m), right(m), equal)

    def _among(self, left: Callable[[Stored], Any]) -> Test:
        self._need("(")
        values = [self._operand()]
        while self._accept(","):
            values.append(self._operand())
        self._need(")")
        return lambda m: _any([_compared(left(m), value(m), True) for value in values])

    def _operand(self) -> Callable[[Stored], Any]:
        kind, text = self._next()
        if kind == "text":
            literal = text[1:-1].replace("''", "'")
            return lambda m: literal
        if kind == "number":
            whole = int(text)
            return lambda m: whole
        if kind != "word":
            raise FilterError(f"not supported in a filter: {text!r}")
        return _property(text.strip("[]"))


def _property(name: str) -> Callable[[Stored], Any]:
    scope, dot, rest = name.partition(".")
    if dot and scope.lower() == "sys":
        known = _SYSTEM.get(rest.lower())
        if known is None:
            raise FilterError(f"sys.{rest} is not supported in a filter")
        return lambda m: m.system.get(known)
    own = rest if dot and scope.lower() == "user" else name
    return lambda m: m.application.get(own)


def _compared(left: Any, right: Any, equal: bool) -> bool | None:
    if left is None or right is None:
        return None
    return bool(left == right) is equal


def _any(values: list[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value
