"""Every code that a step or a job can fail with, and every reason to set a message aside, is documented."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/fault-codes.md").read_text("utf-8")
SOURCES = "\n".join(
    path.read_text("utf-8")
    for folder in (
        "core",
        "engine",
        "platform",
        "services",
        "adapters/buses",
        "adapters/workspaces",
    )
    for path in sorted((ROOT / "src/lucius" / folder).rglob("*.py"))
)
CODE = r'"([A-Z][A-Z_]+)"'
FAULTS = (
    rf"\bFault\({CODE}",
    rf"\bdefault_code[^=\n]*= {CODE}",
    rf"\bcode={CODE}",
    rf"\bFailure\([^\n]*?, {CODE}",
    rf'"error_code"\) or {CODE}',
)
ASIDE = (rf"set_aside\([^\n]*?{CODE}", rf"TOO_MANY: Final = {CODE}")


def used(patterns: tuple[str, ...]) -> set[str]:
    return {code for pattern in patterns for code in re.findall(pattern, SOURCES, re.DOTALL)}


def listed(table: str) -> set[str]:
    return set(re.findall(r"^\| `([A-Z_]+)` \|", table, re.MULTILINE))


def test_every_fault_code_is_documented_and_no_other() -> None:
    faults, _, aside = PAGE.partition("## Messages that are set aside")
    assert len(used(FAULTS)) > 15
    assert listed(faults) == used(FAULTS)
    assert used(ASIDE) <= listed(aside)
