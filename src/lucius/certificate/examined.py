"""Which service is examined, where its files lie, and how long it may take."""

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from lucius.certificate.samples import SLOW_SECONDS


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things may take, in seconds. `slow` is how long slow work takes."""

    ack: float = 5.0
    result: float = 20.0
    quiet: float = 1.0
    slow: float = SLOW_SECONDS

    @property
    def lease(self) -> float:
        """Shorter than slow work, so that it needs heartbeats."""
        return self.slow * 0.6


@dataclass(frozen=True, slots=True)
class Examined:
    """Which service it is. `outputs`: whether its steps leave outputs in the workspace."""

    service: str
    step_type: str
    outputs: bool = True


class Folders:
    """Where inputs, outputs and workspaces of the exams lie."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.input, self.output, self.workspace = (
            root / "input",
            root / "output",
            root / "workspace",
        )
        for folder in (self.input, self.output, self.workspace):
            folder.mkdir(parents=True, exist_ok=True)

    def copied(self, source: Path | None, text: str) -> str:
        target = self.input / f"{uuid4().hex[:8]}-{source.name if source else 'input.txt'}"
        target.write_bytes(source.read_bytes() if source else text.encode())
        return target.as_uri()
