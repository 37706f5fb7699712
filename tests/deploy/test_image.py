"""The image. No engine builds it here: its file is read, and what it installs is compared with the pins."""

import json
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.chart import container, pods
from tests.tools.test_requirements import pins

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy/Containerfile").read_text()
EXTRAS = ("azure", "nats", "temporal")


def instructions() -> list[tuple[str, str]]:
    lines = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.splitlines()]


def of(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def allowed(path: str) -> bool:
    """Whether `.dockerignore`, which keeps out all but what it lists, lets a path into the context."""
    listed = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in listed
    return any(
        path == each[1:] or path.startswith(f"{each[1:]}/") for each in listed if each[0:1] == "!"
    )


def test_what_is_copied_is_there_and_in_the_context() -> None:
    sources = [
        source
        for rest in of("COPY")
        if not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert allowed(source), source


def base_faults(lines: list[str]) -> list[str]:
    """Bases that may be another image tomorrow: every one but an earlier stage and a digest."""
    stages = {line.split(" AS ")[1] for line in lines if " AS " in line}
    bases = [line.split(" AS ")[0] for line in lines]
    return [base for base in bases if base not in stages and not BY_DIGEST.fullmatch(base)]


BY_DIGEST = re.compile(r"[\w./-]+@(\$\{PYTHON_DIGEST\}|sha256:[0-9a-f]{64})")


def test_the_base_is_named_by_its_digest() -> None:
    assert len(of("FROM")) == 2
    assert base_faults(of("FROM")) == []
    for tagged in ("python:3.11-slim", "${PYTHON_IMAGE}", "python", "python:3@${TAG} AS x"):
        assert base_faults([tagged]), tagged


def test_the_last_stage_is_not_root_and_is_the_user_of_the_pods() -> None:
    stages = TEXT.split("\nFROM ")
    assert len(stages) == 3
    (user,) = of("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert "USER" in stages[-1]
    for pod in pods("azure").values():
        context = pod["spec"]["securityContext"]
        assert f"{context['runAsUser']}:{context['runAsGroup']}" == user


def test_it_runs_the_command_line_and_nothing_is_written_beside_it() -> None:
    (entry,) = of("ENTRYPOINT")
    assert json.loads(entry) == ["lucius"]
    assert "lucius" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for pod in pods("azure").values():
        assert "command" not in container(pod)
    assert "LUCIUS_DATA_DIR=/var/lib/lucius" in of("ENV")[0]


def test_everything_installed_is_pinned_by_hash() -> None:
    runs = " ".join(of("RUN"))
    installs = [part for part in runs.split("&&") if " install " in part and "pip" in part]
    for each in installs:
        named = re.findall(r"-r (\S+)", each)
        assert ("--require-hashes" in each and named) or "--no-deps" in each
        assert all((ROOT / name).exists() for name in named)
    assert "--no-build-isolation" in runs


def test_it_holds_no_secret_and_names_no_host() -> None:
    assert not re.search(r"(?i)password|token|secret|api[_-]?key|https?://", TEXT)
    assert of("ARG") == ["PYTHON_DIGEST"], "without a default, so that nobody builds on a tag"
    assert not of("ADD")


def test_the_pins_of_the_image_are_those_of_the_product_with_its_backends() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    image, dev = pins("image.txt"), pins("dev.txt")
    assert pins("runtime.txt").items() <= image.items() <= dev.items()
    needed = [text for extra in EXTRAS for text in project["optional-dependencies"][extra]]
    assert {canonicalize_name(Requirement(text).name) for text in needed} <= image.keys()
    text = (ROOT / "requirements/image.txt").read_text()
    assert len(re.findall(r"^\S+==", text, re.M)) <= text.count("--hash=sha256:")
