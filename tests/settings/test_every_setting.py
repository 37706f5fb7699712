"""A setting exists when something reads it, and there are at most 80 of them."""

import ast
import re
from pathlib import Path

from lucius.core.plan import BACKOFFS
from lucius.ledgers import LEDGERS
from lucius.settings.behaviour import CommandLine
from lucius.settings.declaring import rows
from lucius.settings.reserved import RESERVED
from lucius.settings.table import ROWS, SECTIONS

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src/lucius"
FIELDS = {row.env: name for section in SECTIONS for name, row in rows(section).items()}
OF_CLIENTS = {row.env for row in rows(CommandLine).values()}


def attributes() -> set[str]:
    """What the parts of LUCIUS take from the settings, as `settings.x` or, in their own methods, `self.x`."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        whose = "self" if path == SOURCE / "settings/table.py" else "settings"
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(whose):
                found.add(node.attr)
    return found


def variables_of_clients() -> set[str]:
    """Clients do not load the settings: they read these variables themselves."""
    text = "".join(
        path.read_text("utf-8")
        for folder in ("cli", "client")
        for path in (SOURCE / folder).rglob("*.py")
    )
    return set(re.findall(r"\bLUCIUS_\w+", text))


def test_they_are_few() -> None:
    """What nobody changes is a constant beside its use."""
    assert len(ROWS) <= 80


def test_every_setting_is_read() -> None:
    of_ledgers = {FIELDS[env] for kind in LEDGERS.values() for env in kind.reads}
    read = attributes() | of_ledgers | set(BACKOFFS)
    unread = {
        row.env for name, row in ROWS.items() if name not in read and row.env not in OF_CLIENTS
    }
    assert not unread, "a setting that nothing reads goes, or is reserved until something does"
    assert variables_of_clients() >= OF_CLIENTS


def test_what_is_read_is_not_reserved() -> None:
    read = attributes()
    assert not {env for env in RESERVED if FIELDS.get(env) in read}
