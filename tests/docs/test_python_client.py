"""The script on the page of the Python client runs as it stands."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.up import clean_environment, up
from tests.docs.blocks import blocks_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/python-client.md").read_text("utf-8")


def test_the_script_submits_a_job_and_prints_its_output(tmp_path: Path) -> None:
    document = tmp_path / "contract.pdf"
    shutil.copy(ROOT / "src/lucius/cli/examples/sample.pdf", document)
    script = next(block.text for block in blocks_of(PAGE) if block.info == "python")
    with up(tmp_path) as server:
        done = subprocess.run(
            [sys.executable, "-c", script.replace("/data/contract", str(document.with_suffix("")))],
            env=clean_environment(LUCIUS_URL=server.url),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SUCCEEDED {'uri': 'file://")
