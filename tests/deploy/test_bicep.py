"""The infrastructure. No Bicep compiler can be had here: the files are parsed, and their names checked.

What this does not show: that Azure knows the types and properties, and takes their values. `az deployment
group validate` does; docs/how-to/azure.md begins with it.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lucius.app.provisioning import subscriptions
from lucius.core.plan import Mode
from lucius.core.routing import LANES, TOPOLOGIES, directive_topic, reply_topic
from lucius.ports.bus import NOTICES
from tests.api.world import CATALOG
from tests.deploy.bicep import FUNCTIONS, BicepFile, text_of, value_of, within
from tests.deploy.chart import CHART, DEPLOY, of_kind

AZURE = DEPLOY / "azure"
MAIN = BicepFile(AZURE / "main.bicep")
ACCESS = BicepFile(AZURE / "access.bicep")
SERVICE = CATALOG.protocols["OCR->EMBEDDING"].steps[0].service
MODULES = [(file, name) for file in (MAIN, ACCESS) for name in file.declared("module")]
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
    "4d97b98b-1d4f-4787-a291-c67834d212e7": "Network Contributor",
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


@pytest.mark.parametrize(("file", "name"), MODULES, ids=[name for _, name in MODULES])
def test_a_module_exists_and_is_given_what_it_takes(file: BicepFile, name: str) -> None:
    module = file.declared("module")[name]
    target = module_file(module.source)
    assert target.path.exists()
    taken = target.declared("param")
    assert module.given() <= taken.keys()
    assert {each.name for each in taken.values() if not each.has_default} <= module.given()


def test_every_module_is_used() -> None:
    used = {file.declared("module")[name].source for file, name in MODULES}
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
    assert set(found) == set(named.values()) == ROLES.keys()
    for name, role in named.items():
        assert ROLES[role].replace(" ", "").lower().endswith(name.lower()), name


def module_text(name: str) -> str:
    return text_of(MAIN.declared("module")[name].node)


def test_services_reach_neither_the_ledger_nor_the_configuration_nor_the_whole_bus() -> None:
    assert "tableUsers: [controlPlane.outputs.principalId]" in module_text("storage")
    assert "users: [controlPlane.outputs.principalId]" in module_text("bus")
    assert "managers: [provision.outputs.principalId]" in module_text("bus")
    for name in ("storage", "bus", "configuration", "registry"):
        assert "serviceIdentities" not in module_text(name), name


def scopes(file: BicepFile) -> dict[str, str]:
    """What each role assignment of a file is for."""
    found = re.findall(
        r"^resource (\w+) 'Microsoft.Authorization/.*?^ +scope: (\w+)",
        file.path.read_text(),
        re.M | re.S,
    )
    return dict(found)


def test_a_service_has_rights_on_two_containers_its_subscriptions_and_the_replies_alone() -> None:
    assert scopes(module_file("modules/containers.bicep")) == {
        "workspaceUse": "workspaces",
        "documentUse": "documents",
    }
    assert scopes(module_file("modules/storage.bicep")) == {
        "tableUse": "account",
        "workspaceUse": "workspaces",
    }
    assert scopes(module_file("modules/access.bicep")) == {
        "sending": "replyTopics",
        "receiving": "own",
    }


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_subscriptions_of_a_service_are_those_that_are_provisioned(topology: str) -> None:
    """A right on one that is missing would fail the deployment; one that has none is not read."""
    names: dict[str, Any] = {"prefix": "t-", "topology": topology, "service": SERVICE}
    for name, each in ACCESS.declared("var").items():
        names[name] = value_of(each.node.children[-1], names)
    (module,) = ACCESS.declared("module").values()
    given = {
        text_of(each.children[0]): each.children[2]
        for each in within(module.node)
        if each.type == "object_property"
    }
    found = value_of(given["subscriptions"], names)
    assert [(each["topic"], each["subscription"]) for each in found] == [
        (f"t-{NOTICES.topic}", NOTICES.name),
        *(
            (f"t-{directive_topic(lane, mode, topology)}", name)
            for mode, lane, name in expected(topology)
        ),
    ]
    assert value_of(given["replies"], names) == [f"t-{reply_topic(n)}" for n in range(LANES)]
    provisioned = subscriptions(CATALOG, topology, [topology])
    made = {(f"t-{each.topic}", each.name) for each in provisioned}
    assert {(each["topic"], each["subscription"]) for each in found} <= made


def expected(topology: str) -> list[tuple[Mode, int, str]]:
    modes = (Mode.DEFAULT,) if topology == "shared" else tuple(Mode)
    return [
        (mode, lane, f"{SERVICE}-{mode.value.lower()}" if topology == "filtered" else SERVICE)
        for mode in modes
        for lane in range(LANES)
    ]


def test_nothing_is_public_unless_addresses_are_named() -> None:
    assert "param allowedAddresses array = []" in MAIN.path.read_text()
    closed = "publicNetworkAccess: empty(allowedAddresses) ? 'Disabled' : 'Enabled'"
    for name in ("storage", "registry"):
        text = (AZURE / f"modules/{name}.bicep").read_text()
        assert closed in text, name
        assert "defaultAction: 'Deny'" in text, name
    bus = (AZURE / "modules/bus.bicep").read_text()
    assert "tier == 'Premium' && empty(allowedAddresses) ? 'Disabled' : 'Enabled'" in bus
    assert "defaultAction: 'Deny'" in bus
    store = (AZURE / "modules/configuration.bicep").read_text()
    assert "publicNetworkAccess: public ? 'Enabled' : 'Disabled'" in store
    assert "public: !empty(allowedAddresses)" in module_text("configuration")
    cluster = (AZURE / "modules/cluster.bicep").read_text()
    assert "enablePrivateCluster: empty(allowedAddresses)" in cluster
    assert "authorizedIPRanges: allowedAddresses" in cluster


def test_each_resource_has_a_private_endpoint() -> None:
    found = {
        name: re.findall(r"target: (\w+)\.outputs\.id\n +part: '(\w+)'", module_text(name))
        for name in MAIN.declared("module")
        if name.endswith("Endpoint")
    }
    assert {pair for (pair,) in found.values()} == {
        ("storage", "table"),
        ("storage", "blob"),
        ("bus", "namespace"),
        ("configuration", "configurationStores"),
        ("registry", "registry"),
    }


def test_keys_and_passwords_of_azure_are_off() -> None:
    def text(name: str) -> str:
        return (AZURE / f"modules/{name}.bicep").read_text()

    assert "allowSharedKeyAccess: false" in text("storage")
    assert "disableLocalAuth: true" in text("bus")
    assert "disableLocalAuth: true" in text("configuration")
    assert "disableLocalAccounts: true" in text("cluster")
    assert "adminUserEnabled: false" in text("registry")


def test_an_identity_trusts_the_service_account_of_the_chart() -> None:
    services = yaml.safe_load((CHART / "values-azure.yaml").read_text())["services"]
    (default,) = re.findall(r"^param services array = \[(.*)\]$", MAIN.path.read_text(), re.M)
    assert default == ", ".join(f"'{name}'" for name in services)
    for account in of_kind("ServiceAccount", "azure"):
        part = re.sub(r"^acme-service-\w+$", "acme-service-${service}", account).removeprefix(
            "acme"
        )
        assert f"system:serviceaccount:${{namespace}}:${{release}}{part}'" in MAIN.path.read_text()


def test_keda_is_where_the_network_policy_expects_it() -> None:
    """The add-on of AKS runs in kube-system."""
    values = yaml.safe_load((CHART / "values-azure.yaml").read_text())
    assert values["networkPolicy"]["kedaNamespace"] == "kube-system"
