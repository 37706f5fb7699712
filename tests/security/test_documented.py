"""The page on security: its commands run, its table of roles is the code's, its example verifies."""

import base64
import re
import subprocess
from pathlib import Path
from secrets import token_bytes
from typing import Any

from lucius.api.jwks import FRESH_SECONDS, PAUSE_SECONDS, STALE_SECONDS
from lucius.bootstrap.listening import free_port
from lucius.bootstrap.runtime import WAITING
from lucius.bootstrap.serve import CONNECTIONS, PER_ADDRESS
from lucius.core.retry import EFFECT_ATTEMPTS, effect_backoff
from lucius.server.connections import RESERVE
from lucius.server.protocol import MAX_DROPPED_BYTES, MAX_HEAD_BYTES, MAX_HEADERS
from lucius.webhooks.sender import LONGEST, sign
from tests.cli.up import clean_environment
from tests.docs.blocks import blocks_of, script_of
from tests.security.routes import GUARDED, PUBLIC

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


def test_the_table_of_roles_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    written = {role: set(text.split(", ")) for role, text in rows}
    meant: dict[str, set[str]] = {}
    for route in GUARDED:
        mark = " (all tenants)" if route.for_every_tenant else ""
        for role in route.roles:
            meant.setdefault(role, set()).add(f"`{route}`{mark}")
    assert written == meant
    assert all(f"`{path}`" in PAGE for path in PUBLIC)


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert (FRESH_SECONDS, PAUSE_SECONDS, STALE_SECONDS) == (300, 5, 3600)
    assert (MAX_HEAD_BYTES, MAX_HEADERS) == (32 * 1024, 100)
    assert (MAX_DROPPED_BYTES, RESERVE) == (64 * 1024 * 1024, 32)
    assert (CONNECTIONS, PER_ADDRESS, WAITING) == (2000, 1000, 250)
    assert LONGEST.total_seconds() == 15
    waits = sum(effect_backoff(number).total_seconds() for number in range(1, EFFECT_ATTEMPTS))
    assert EFFECT_ATTEMPTS == 12
    assert round(waits / 3600) == 7


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
