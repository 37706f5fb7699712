"""The way from an empty subscription names what is there: outputs, values, commands, files and keys."""

import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from lucius.http.tokens import CallbackTokens
from tests.deploy.chart import HELM, of_kind
from tests.docs.blocks import blocks_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/azure.md").read_text("utf-8")
SHELL = "\n".join(block.text for block in blocks_of(PAGE) if block.info == "sh").replace(
    "\\\n", " "
)


def named(info: str) -> str:
    (block,) = [block for block in blocks_of(PAGE) if block.info == info]
    return block.text


def installation() -> list[str]:
    """The arguments of `helm upgrade --install`, with the outputs filled in."""
    (line,) = re.findall(r"^helm upgrade --install lucius (.*)$", SHELL, re.MULTILINE)
    return shlex.split(re.sub(r'"\$\((?:out|identity) (\w+)\)"', r"https://\1.example", line))


def rendered(*more: str) -> list[dict[str, Any]]:
    """What is installed, though its address of the bus is no URL."""
    given = [each.replace("bus.namespace=https://", "bus.namespace=") for each in installation()]
    done = subprocess.run(
        [HELM, "template", "lucius", *given, *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def test_the_secrets_that_are_made_are_those_that_are_read() -> None:
    made = {
        name: set(re.findall(r"--from-literal=([a-z-]+)=", rest))
        for name, rest in re.findall(r"create secret generic ([a-z-]+) +(.*)$", SHELL, re.MULTILINE)
    }
    (keda,) = of_kind("TriggerAuthentication", "azure").values()
    (monitor,) = of_kind("ServiceMonitor", "azure").values()
    scrape = monitor["spec"]["endpoints"][0]["authorization"]["credentials"]
    (read,) = keda["spec"]["secretTargetRef"]
    assert made == {
        "lucius": {"callback-keys", "webhook-secret"},
        read["name"]: {read["key"]},
        scrape["name"]: {scrape["key"]},
    }


def test_no_replica_meets_a_token_that_it_does_not_know_while_keys_are_rotated() -> None:
    """Beside each step of the page runs the one before it. Without the first step, that fails."""
    attempt = ("acme", "job_0", "ocr", 1, "lease")
    steps = [
        ["k1"],
        *(re.findall(r"(k\d):", words) for words in re.findall(r"^\d\. `(.*?)`", PAGE, re.M)),
    ]
    assert steps == [["k1"], ["k2", "k1"], ["k1", "k2"], ["k2"]]
    tokens = [CallbackTokens({key: key.encode() * 16 for key in keys}) for keys in steps]
    for before, after in pairwise(tokens[:3]):
        assert before.opened(after.mint(*attempt)) is not None
        assert after.opened(before.mint(*attempt)) is not None
    assert tokens[0].opened(tokens[2].mint(*attempt)) is None
