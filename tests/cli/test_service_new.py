"""`lucius service new`: a project that a team can fork, and that passes its own tests as it is."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from lucius.adapters.configs.files import FileConfig
from lucius.app.settings import load_settings
from lucius.cli.main import main
from lucius.platform import Output, Service
from lucius.ports.config import Catalog
from tests.deploy.chart import CHART, HELM, IMAGE

FILES = {
    ".gitignore",
    "Containerfile",
    "README.md",
    "certificate.yaml",
    "protocols/page-counter.yaml",
    "pyproject.toml",
    "sample.txt",
    "service.py",
    "tests/test_contract.py",
    "tests/test_service.py",
    "values.yaml",
}


def new(folder: Path, step_type: str, *words: str) -> Result:
    return CliRunner().invoke(
        main, ["service", "new", str(folder), "--step-type", step_type, *words]
    )


def catalog_of(protocols: str) -> Catalog:
    settings = load_settings({"LUCIUS_PROTOCOLS": protocols})
    return FileConfig(settings.protocol_paths(), policy=settings.retry_policy()).catalog()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "page-counter"
    result = new(folder, "PAGE_COUNT", "--json")
    assert result.exit_code == 0, result.output
    assert {
        str(Path(each).relative_to(folder)) for each in json.loads(result.stdout)["files"]
    } == FILES
    return folder


def test_its_protocol_file_makes_a_server_use_the_service(project: Path) -> None:
    catalog = catalog_of(f"packaged,{project / 'protocols'}")
    (step,) = catalog.protocols["PAGE_COUNT"].steps
    assert (step.service, step.step_type) == ("page-counter", "PAGE_COUNT")


def test_a_packaged_step_type_takes_the_place_of_the_packaged_protocols(tmp_path: Path) -> None:
    assert new(tmp_path / "our-ocr", "OCR").exit_code == 0
    readme = (tmp_path / "our-ocr/README.md").read_text()
    assert "LUCIUS_PROTOCOLS=protocols lucius up" in readme
    catalog = catalog_of(str(tmp_path / "our-ocr/protocols"))
    assert catalog.protocols["OCR"].steps[0].service == "our-ocr"


def test_its_values_fit_the_chart(project: Path) -> None:
    words: list[str | Path] = [
        HELM,
        "template",
        "acme",
        CHART,
        "-f",
        CHART / "values-nats.yaml",
        "--set",
        IMAGE,
    ]
    done = subprocess.run(
        [*words, "-f", project / "values.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Deployment"]
    ours = [each for each in found if "page-counter" in each["metadata"]["name"]]
    assert len(ours) == 2, "one for each mode"
    (container,) = ours[0]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "page-counter:0.1.0"
    assert "service:PageCounter" in container["args"]


def test_its_files_say_the_same_names(project: Path) -> None:
    assert (
        tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"] == "page-counter"
    )
    container = (project / "Containerfile").read_text()
    assert "FROM ${LUCIUS_IMAGE}\n" in container
    assert '"service:PageCounter"' in container
    assert "$" not in (project / "service.py").read_text(), "nothing was left to be filled in"


@pytest.mark.parametrize(
    "name", ["none", "true", "service", "output", "payload", "field", "fatal-error", "sync-task"]
)
def test_a_name_that_means_something_in_python_is_made_longer(tmp_path: Path, name: str) -> None:
    assert new(tmp_path / name, "PAGE_COUNT").exit_code == 0
    made: dict[str, Any] = {"__name__": "service"}
    source = tmp_path / name / "service.py"
    exec(compile(source.read_text(), source, "exec"), made)
    found = {each for each in made.values() if isinstance(each, type) and issubclass(each, Service)}
    (kind,) = found - {Service}
    assert (kind.name, made["Output"]) == (name, Output), "and nothing else is hidden by it"
    assert f"service:{kind.__name__}" in (tmp_path / name / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "step_type", "said"),
    [
        ("Shout", "SHOUT", "'Shout' cannot name a service"),
        ("shout-", "SHOUT", "cannot name a service"),
        ("1st", "SHOUT", "cannot name a service"),
        ("a" * 33, "SHOUT", "cannot name a service"),
        ("shout", "shout", "did you mean SHOUT?"),
        ("shout", "A STEP", "is no step type"),
        ("shout", "", "is no step type"),
        ("there", "SHOUT", "is there already"),
        ("file", "SHOUT", "is there already"),
        ("there/.", "SHOUT", "is there already"),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_written(
    tmp_path: Path, name: str, step_type: str, said: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("mine")
    result = new(tmp_path / name, step_type)
    assert (result.exit_code, said in result.stderr) == (1, True), result.output
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "there"]
