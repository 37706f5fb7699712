"""The way from an empty subscription names what is there: outputs, values, commands, files and keys."""

import json
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from lucius import __version__
from lucius.api.tokens import CallbackTokens
from lucius.configs.files import PACKAGED
from tests.deploy.chart import CHART, HELM, container, of_kind
from tests.deploy.test_bicep import MAIN
from tests.deploy.test_product import unknown_flags
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


def test_every_output_that_is_asked_for_is_one_of_the_deployment() -> None:
    asked = set(re.findall(r"\bout (\w+)", SHELL))
    asked |= set(re.findall(r"outputs\.(\w+)\.value", SHELL))
    assert asked == MAIN.declared("output").keys()


def test_the_installation_renders_with_an_identity_for_each_part() -> None:
    accounts = [each for each in rendered() if each["kind"] == "ServiceAccount"]
    clients = {
        each["metadata"]["name"]: each["metadata"]["annotations"][
            "azure.workload.identity/client-id"
        ]
        for each in accounts
    }
    assert clients == {
        "lucius-control-plane": "https://controlPlaneClientId.example",
        "lucius-provision": "https://provisionClientId.example",
        "lucius-service-ocr": "https://ocr.example",
        "lucius-service-embedding": "https://embedding.example",
        "lucius-service-sis": "https://sis.example",
    }


def test_the_objects_that_the_page_speaks_of_are_installed() -> None:
    kinds = {"deployment": "Deployment", "job": "Job", "service": "Service"}
    found = {(each["kind"], each["metadata"]["name"]) for each in rendered()}
    asked = re.findall(r"\b(deployment|job|service)/([a-z0-9-]+)", SHELL)
    assert {(kinds[kind], name) for kind, name in asked} <= found
    assert len(asked) > 4


def test_packaged_services_run_in_an_image_that_has_their_libraries() -> None:
    """The image of the control plane has none: they are an extra."""
    packaged = [
        container(each["spec"]["template"])
        for each in rendered()
        if each["kind"] == "Deployment" and "lucius.services:" in str(each)
    ]
    assert len(packaged) == 3 * 2
    built = "https://imageRepository.example-services:0.1.0"
    assert {each["image"] for each in packaged} == {built}
    assert f'--tag "$(out imageRepository)"-services:{__version__} ' in SHELL
    assert "-r /tmp/services.txt" in named("dockerfile file=services.Containerfile")


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


def test_keda_is_enabled_once_its_secret_is_there() -> None:
    """A scaler whose Secret is missing is not built, and its fallback does not count either."""
    assert "keda.enabled=false" in installation()
    kinds = [each["kind"] for each in rendered()]
    assert "ScaledObject" not in kinds
    secret, enabled = SHELL.index("generic lucius-keda"), SHELL.index("--set keda.enabled=true")
    assert SHELL.index("helm upgrade --install") < secret < enabled
    for each in rendered():
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "lucius-ocr-default":
            assert each["spec"]["replicas"] == 3


def test_every_command_of_lucius_has_the_flags_that_are_used() -> None:
    keys = re.findall(r"\bkeys ((?:keda|prometheus|acme) --[^)>\n]*)", SHELL)
    assert len(keys) == 3
    direct = re.findall(r"\.venv/bin/lucius (.*)$", SHELL, re.MULTILINE)
    assert direct
    for each in [*(f"keys create {words}" for words in keys), *direct]:
        assert unknown_flags(shlex.split(each)) == set(), each


def test_files_that_are_named_are_there() -> None:
    named_files = set(re.findall(r"\b(?:deploy|examples)/[\w./-]+\w", PAGE))
    assert len(named_files) > 3
    for name in named_files:
        assert (ROOT / name).exists(), name


def test_the_packaged_protocols_are_written_as_keys(tmp_path: Path) -> None:
    (tmp_path / "configuration.py").write_text(named("python file=configuration.py"))
    subprocess.run([sys.executable, "configuration.py"], cwd=tmp_path, check=True, timeout=60)
    items = json.loads((tmp_path / "configuration.json").read_text())["items"]
    stored = {each["key"]: each["value"] for each in items}
    packaged: dict[str, Any] = {}
    for path in PACKAGED.glob("*.yaml"):
        packaged |= yaml.safe_load(path.read_text("utf-8"))
    assert packaged.keys() == {"defaults", "protocols", "step_types"}
    protocols = [json.loads(v) for k, v in stored.items() if k.startswith("lucius/protocols/")]
    assert protocols == packaged["protocols"]
    for name, step_type in packaged["step_types"].items():
        assert json.loads(stored[f"lucius/step_types/{name}"]) == step_type
    assert json.loads(stored["lucius/defaults"]) == packaged["defaults"]
    assert items[-1]["key"] == "lucius/sentinel"


def test_the_values_that_open_it_are_taken(tmp_path: Path) -> None:
    (tmp_path / "open.yaml").write_text(named("yaml file=open.yaml"))
    found = rendered("--values", str(tmp_path / "open.yaml"))
    (ingress,) = [each for each in found if each["kind"] == "Ingress"]
    assert ingress["spec"]["rules"][0]["host"] == "lucius.example.com"


def test_what_the_page_says_of_the_defaults_holds() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    scaling = values["orchestrator"]["autoscaling"]
    assert f"{scaling['minReplicas']} to {scaling['maxReplicas']}" in PAGE
    assert f"`reconciler.replicas`, {values['reconciler']['replicas']} " in PAGE
    assert f'--tag "$(out imageRepository)":{__version__} ' in PAGE


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
