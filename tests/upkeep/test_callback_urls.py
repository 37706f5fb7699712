"""The URLs for replies over HTTP are absolute, whichever process publishes a directive."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lucius.app.access import ReplyTokens
from lucius.app.azure_stack import Stack
from lucius.app.settings import load_settings
from lucius.http.tokens import CallbackTokens

BOUND = {"tenant_id": "t", "jobId": "j", "stepId": "s", "attempt_no": 1, "lease_id": "l"}


def decorated(public_url: str) -> dict[str, Any]:
    tokens = CallbackTokens({"k": b"s" * 16})
    body = {**BOUND, "reply_topic": "global-bus-replies-p0"}
    return ReplyTokens(tokens, public_url, required=False).decorate(body)


def test_a_process_that_knows_no_url_of_the_api_names_none() -> None:
    assert "callback_urls" not in decorated("")
    urls = decorated("https://lucius.example/base/")["callback_urls"]
    assert urls["ack"] == "https://lucius.example/base/v1/callbacks/ack"


class Recorded(Stack):
    """Starts nothing, and keeps the environment that each process would have."""

    def __init__(self, folder: Path, **environ: str) -> None:
        settings = load_settings({"LUCIUS_DATA_DIR": str(folder)})
        super().__init__(settings, {"LUCIUS_BUS_BACKEND": "nats", **environ})
        self.urls: dict[str, str | None] = {}

    async def _start(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str] | None = None,
        **how: Any,
    ) -> Any:
        self.urls[name] = self.environ.get("LUCIUS_PUBLIC_URL")
        return SimpleNamespace(said='{"url": "http://x"}')


@pytest.mark.parametrize(
    ("host", "environ", "url"),
    [
        ("127.0.0.1", {}, "http://127.0.0.1:8700"),
        ("::1", {}, "http://[::1]:8700"),
        ("0.0.0.0", {}, None),
        ("127.0.0.1", {"LUCIUS_PUBLIC_URL": "https://given"}, "https://given"),
    ],
)
def test_reconcilers_of_a_stack_know_where_its_api_is(
    tmp_path: Path, host: str, environ: dict[str, str], url: str | None
) -> None:
    stack = Recorded(tmp_path, **environ)
    asyncio.run(stack.start_processes(host, 8700, ()))
    assert {name: each for name, each in stack.urls.items() if name.startswith("reconciler")} == {
        "reconciler 1": url,
        "reconciler 2": url,
    }
