"""The commands of `how to write a service`, in their order, against a real server on a free port."""

import subprocess
from pathlib import Path

import pytest

from lucius.app.lifecycle import free_port
from tests.cli.up import clean_environment
from tests.docs.blocks import script_of

PAGE = Path(__file__).parents[2] / "docs/how-to/write-a-service.md"
CERTIFY = "lucius certify service:PageCounter"


@pytest.mark.xdist_group("stacks")
def test_the_page_works_as_it_stands(tmp_path: Path) -> None:
    """All promises are looked at by the tests of the project: here one is enough."""
    port = str(free_port())
    text = PAGE.read_text("utf-8").replace("8700", port)
    assert f"\n{CERTIFY}\n" in text
    text = text.replace("lucius up", f"lucius up --port {port}")
    text = text.replace(f"\n{CERTIFY}\n", f"\n{CERTIFY} --check work-succeeds\n")
    done = subprocess.run(
        ["bash", "-c", script_of(text)],
        cwd=tmp_path,
        env=clean_environment(LUCIUS_URL=f"http://127.0.0.1:{port}"),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("7 passed", "1 kept, 0 broken", "succeeded: file:", "20 of 20 ended"):
        assert said in done.stdout
    assert "WORK ON.\nA SHORT TEXT" in done.stdout, "the result, twice as the payload says"
