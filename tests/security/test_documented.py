"""The page on security: its commands run, its table of roles is the code's, its example verifies."""

import base64
import subprocess
from pathlib import Path
from secrets import token_bytes
from typing import Any

from lucius.app.lifecycle import free_port
from lucius.operations.webhooks import sign
from tests.cli.up import clean_environment
from tests.docs.blocks import blocks_of, script_of

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "security.md").read_text("utf-8")


def test_the_commands_of_the_page_work_as_they_stand(tmp_path: Path) -> None:
    port = str(free_port())
    page = PAGE.replace("lucius up\n", f"lucius up --port {port}\n")
    done = subprocess.run(
        ["bash", "-c", script_of(page)],
        cwd=tmp_path,
        env=clean_environment(LUCIUS_URL=f"http://127.0.0.1:{port}"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "UNAUTHENTICATED" in done.stderr
    assert "lucius_" in (tmp_path / "metrics.txt").read_text()
    assert "whsec_" in done.stdout


def test_the_example_tells_true_webhooks_from_false_ones() -> None:
    (example,) = [block.text for block in blocks_of(PAGE) if "verify.py" in block.info]
    names: dict[str, Any] = {}
    exec(example, names)
    key, body = token_bytes(32), b'{"type": "job.succeeded"}'
    secret = "whsec_" + base64.b64encode(key).decode()
    headers = {
        "webhook-id": "job_1:notify-0",
        "webhook-timestamp": "1000",
        "webhook-signature": "v1,old " + sign(key, "job_1:notify-0", "1000", body),
    }
    verify = names["is_from_lucius"]
    assert verify(secret, headers, body, now=1100)
    assert not verify(secret, headers, body, now=1400)
    assert not verify(secret, headers, body + b" ", now=1100)
    assert not verify(secret, {**headers, "webhook-id": "job_2:notify-0"}, body, now=1100)
