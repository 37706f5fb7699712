"""The infrastructure. No Bicep compiler can be had here: the files are parsed, and their names checked.

What this does not show: that Azure knows the types and properties, and takes their values. `az deployment
group validate` does; docs/how-to/azure.md begins with it.
"""

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.bicep import FUNCTIONS, BicepFile, text_of
from tests.deploy.chart import CHART, DEPLOY, of_kind

AZURE = DEPLOY / "azure"
MAIN = BicepFile(AZURE / "main.bicep")
FILES = [BicepFile(path) for path in sorted(AZURE.rglob("*.bicep"))]
EACH = pytest.mark.parametrize("file", FILES, ids=lambda file: file.path.name)
ROLES = {
    "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": "Storage Table Data Contributor",
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": "Storage Blob Data Contributor",
    "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39": "Azure Service Bus Data Sender",
    "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0": "Azure Service Bus Data Receiver",
    "090c5cfd-751d-490a-894a-3ce6f1109419": "Azure Service Bus Data Owner",
    "516239f1-63e1-4d78-a4de-a74fb236a071": "App Configuration Data Reader",
    "7f951dda-4ed3-4680-a7ca-43fe172d538d": "AcrPull",
}


def module_file(path: str) -> BicepFile:
    return BicepFile(AZURE / path)


def faults(file: BicepFile) -> list[str]:
    """What a compiler would say of the names in one file."""
    values = file.declared("param", "var", "resource", "module")
    known = values.keys() | FUNCTIONS | file.loop_variables()
    found = ["it does not parse"] if file.tree.has_error else []
    found += [f"{name} is not declared" for name in sorted(file.used() - known)]
    idle = file.declared("param", "var").keys() - file.used()
    return found + [f"{name} is never used" for name in sorted(idle)]


@EACH
def test_a_file_parses_and_uses_what_it_declares(file: BicepFile) -> None:
    assert faults(file) == []


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("param name string\n", "param name strin{\n", "it does not parse"),
        ("param readers array\n", "", "readers is not declared"),
        ("param readers array\n", "param readers array\nparam idle string\n", "idle is never used"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, before: str, after: str, fault: str) -> None:
    text = (AZURE / "modules/configuration.bicep").read_text()
    assert before in text
    (tmp_path / "wrong.bicep").write_text(text.replace(before, after))
    assert fault in faults(BicepFile(tmp_path / "wrong.bicep"))


@pytest.mark.parametrize("name", MAIN.declared("module"))
def test_a_module_exists_and_is_given_what_it_takes(name: str) -> None:
    module = MAIN.declared("module")[name]
    target = module_file(module.source)
    assert target.path.exists()
    taken = target.declared("param")
    assert module.given() <= taken.keys()
    assert {each.name for each in taken.values() if not each.has_default} <= module.given()


def test_every_module_is_used() -> None:
    used = {each.source for each in MAIN.declared("module").values()}
    assert used == {f"modules/{path.name}" for path in (AZURE / "modules").iterdir()}


def test_an_output_that_is_asked_for_is_there() -> None:
    modules = MAIN.declared("module")
    asked = MAIN.outputs_used()
    assert len(asked) > 10
    for module, name in asked:
        assert name in module_file(modules[module].source).declared("output"), f"{module}.{name}"


@EACH
def test_a_resource_has_a_type_and_a_dated_version(file: BicepFile) -> None:
    for each in file.declared("resource").values():
        assert re.fullmatch(r"Microsoft\.\w+(/\w+)+@20\d\d-\d\d-\d\d", each.source), each.source


def test_roles_are_those_that_are_known_and_each_is_given() -> None:
    texts = "".join(file.path.read_text() for file in FILES)
    found = re.findall(r"'([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})'", texts)
    named = dict(re.findall(r"^var (\w+) = '([0-9a-f-]{36})'$", texts, re.M))
    assert sorted(found) == sorted(named.values()) == sorted(ROLES)
    for name, role in named.items():
        assert ROLES[role].replace(" ", "").lower().endswith(name.lower()), name


def module_text(name: str) -> str:
    return text_of(MAIN.declared("module")[name].node)


def test_services_reach_neither_the_ledger_nor_the_configuration() -> None:
    assert "tableUsers: [controlPlane.outputs.principalId]" in module_text("storage")
    assert "services" not in module_text("configuration")
    assert "managers: [provision.outputs.principalId]" in module_text("bus")


def test_keys_and_passwords_of_azure_are_off() -> None:
    def text(name: str) -> str:
        return (AZURE / f"modules/{name}.bicep").read_text()

    assert "allowSharedKeyAccess: false" in text("storage")
    assert "disableLocalAuth: true" in text("bus")
    assert "disableLocalAuth: true" in text("configuration")
    assert "disableLocalAccounts: true" in text("cluster")
    assert "adminUserEnabled: false" in text("registry")


def test_an_identity_trusts_the_service_account_of_the_chart() -> None:
    for account in of_kind("ServiceAccount", "azure"):
        part = account.removeprefix("acme")
        assert f"system:serviceaccount:${{namespace}}:${{release}}{part}'" in MAIN.path.read_text()


def test_keda_is_where_the_network_policy_expects_it() -> None:
    """The add-on of AKS runs in kube-system."""
    values = yaml.safe_load((CHART / "values-azure.yaml").read_text())
    assert values["networkPolicy"]["kedaNamespace"] == "kube-system"
