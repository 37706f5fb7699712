"""Fenced blocks of a page, and a shell script that does what a reader would do with them.

A block's info string says what it is: `sh run`, `sh run fails`, `sh server` (replaces the one before),
`sh worker` (runs on), or `LANGUAGE file=NAME`, which is saved. Everything else is only read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PROLOGUE = """set -euo pipefail
server=
stop_server() { if [ -n "$server" ]; then kill "$server"; wait "$server" || true; fi; }
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
"""


@dataclass(frozen=True)
class Block:
    info: str
    text: str

    @property
    def kind(self) -> str:
        """`run`, `fails`, `server`, `worker`, `file` or nothing."""
        words = self.info.split()
        if any(word.startswith("file=") for word in words):
            return "file"
        if words[:2] == ["sh", "run"]:
            return words[-1]
        return words[1] if words[:1] == ["sh"] and len(words) > 1 else ""


def blocks_of(page: str) -> Iterator[Block]:
    for found in FENCE.finditer(page):
        yield Block(found["info"].strip(), found["text"])


def script_of(page: str) -> str:
    return PROLOGUE + "".join(_lines(block) for block in blocks_of(page))


def _lines(block: Block) -> str:
    match block.kind:
        case "run":
            return block.text
        case "fails":
            return f"if ( {block.text.strip()} ); then echo 'it should have failed'; exit 9; fi\n"
        case "server":
            return f"stop_server\n{_behind(block, 'server.log')}server=$!\n{READY}"
        case "worker":
            return _behind(block, "worker.log")
        case "file":
            return _saved(block)
        case _:
            return ""


READY = (
    """until curl -fs "$LUCIUS_URL/readyz" > ready.log; do kill -0 "$server"; sleep 0.1; done\n"""
)


def _behind(block: Block, log: str) -> str:
    """`exec env` makes the process ours to end, with or without variables before the command."""
    return f"( exec env {block.text.strip()} ) >> {log} 2>&1 &\n"


def _saved(block: Block) -> str:
    name = block.info.partition("file=")[2].split()[0]
    return (
        f"mkdir -p \"$(dirname {name})\"\ncat > {name} <<'END_OF_FILE'\n{block.text}END_OF_FILE\n"
    )
