"""The one codec of names and keys: what LUCIUS calls things, in the characters that Azure takes.

Keys join their parts with `|`. Each part is escaped, so that it comes back as it was and holds neither the
joint nor a character that Azure forbids in keys. Table names drop what is forbidden there.
"""

import re
from datetime import datetime
from typing import Final

from lucius.core.errors import LedgerError
from lucius.core.ids import accepted_at
from lucius.core.limits import KEY_CHARACTERS, escaped_in_key

JOINT: Final = "|"
AFTER_JOINT: Final = "}"
"""The character that sorts right after the joint: the end of everything that begins with a prefix."""
MARK: Final = "~"
EMPTY: Final = f"{MARK};"
DIGITS: Final = 18
FAR: Final = 10**DIGITS - 1

_MARKED: Final = re.compile(r"~([0-9a-f]*);")
_NOT_IN_TABLES: Final = re.compile(r"[^A-Za-z0-9]")
_TABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")


def table_name(setting: str, value: str) -> str:
    """`lucius_ledger` is `luciusledger` there. LedgerError where too little is left for a name."""
    name = _NOT_IN_TABLES.sub("", value)
    if not _TABLE.fullmatch(name):
        raise LedgerError(
            f"{setting}={value!r} gives the table name {name!r}: it takes 3 to 63 letters and digits,"
            " a letter first"
        )
    return name


def escaped(part: str) -> str:
    return escaped_in_key(part) if part else EMPTY


def unescaped(part: str) -> str:
    return _MARKED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", part)


def key(*parts: str | int) -> str:
    """LedgerError where Azure could not hold it."""
    made = JOINT.join(escaped(str(part)) for part in parts)
    if len(made.encode("utf-16-le")) // 2 > KEY_CHARACTERS:
        raise LedgerError(
            f"the ledger cannot store this: its key has over {KEY_CHARACTERS} characters"
        )
    return made


def parts_of(made: str) -> tuple[str, ...]:
    return tuple(unescaped(part) for part in made.split(JOINT))


def prefix(*parts: str | int) -> str:
    """What all keys with these first parts begin with."""
    return key(*parts) + JOINT


def past(made: str) -> str:
    """The end, exclusive, of all keys that begin with this prefix."""
    return made.removesuffix(JOINT) + AFTER_JOINT


def rising(number: int) -> str:
    """In keys, the smaller number first."""
    return f"{min(max(number, 0), FAR):0{DIGITS}}"


def falling(number: int) -> str:
    """In keys, the larger number first."""
    return rising(FAR - number)


def bucket(tenant_id: str, job_id: str) -> str:
    """`tenant|YYYYMM`: the month is in the job's id. Ids that are not ours share one bucket a tenant."""
    made: datetime | None = accepted_at(job_id)
    return key(tenant_id, f"{made:%Y%m}" if made is not None else "000000")
