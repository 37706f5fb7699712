"""The chart speaks of the product as it is: its settings, verbs, flags and routes."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import yaml

from lucius.app.settings import load_settings, settings_page
from lucius.app.settings.loading import ROWS
from lucius.cli.main import main
from lucius.http.app import ROUTES
from tests.deploy.chart import CHART, DEPLOY, FILES, container, mounted, of_kind, pods, variables

DOCUMENTED = dict(re.findall(r"^\| `(LUCIUS_\w+)` \|(.*)$", settings_page(), re.MULTILINE))
UNBUILT = {"LUCIUS_BLOB_CONNECTION"} - DOCUMENTED.keys()
"""Settings of the chart that this tree does not have yet."""
KNOWN = DOCUMENTED.keys() | UNBUILT
SECRET = {row.env for row in ROWS.values() if row.secret}
ALL = pytest.mark.parametrize("values", FILES)
HEALTH = "--health-port"
SAMPLES = {"callback-keys": "k1:0123456789abcdef", "nats-url": "nats://nats:4222"}


def routes() -> set[str]:
    return {route.path for route in ROUTES}


@ALL
def test_every_setting_of_a_pod_is_one_of_the_product_and_is_taken(values: str) -> None:
    for name, pod in pods(values).items():
        found = variables(pod, values)
        assert found.keys() <= KNOWN, name
        environ = {
            each: SAMPLES.get(value.removeprefix("secret:"), value)
            for each, value in found.items()
            if each not in UNBUILT
        }
        settings = load_settings(environ)
        assert settings.warnings == ()
        assert settings.auth != "none"


def test_every_setting_that_the_templates_name_is_one_of_the_product() -> None:
    texts = "".join(path.read_text() for path in CHART.rglob("*") if path.is_file())
    assert set(re.findall(r"\bLUCIUS_[A-Z_]*[A-Z]\b", texts)) - {"LUCIUS_NAME"} <= KNOWN


@ALL
def test_a_secret_setting_is_an_address_without_a_key_or_comes_from_a_secret(values: str) -> None:
    for pod in pods(values).values():
        for name, value in variables(pod, values).items():
            if name in SECRET and not value.startswith("secret:"):
                assert "key" not in value.lower()
                assert ";" not in value


@ALL
def test_a_secret_is_a_file_that_its_pod_and_nobody_else_reads(values: str) -> None:
    for pod in pods(values).values():
        read = {
            each["value"]
            for each in container(pod)["env"] or ()
            if each["name"].removesuffix("_FILE") in SECRET and each["name"].endswith("_FILE")
        }
        assert read == mounted(pod).keys()


def test_the_product_reads_secrets_from_files(tmp_path: Path) -> None:
    file = tmp_path / "webhook-secret"
    file.write_text("0123456789abcdef\n")
    settings = load_settings({"LUCIUS_WEBHOOK_SECRET_FILE": str(file)})
    assert settings.warnings == ()
    assert str(file) in settings.sources["LUCIUS_WEBHOOK_SECRET"]


def test_no_values_file_holds_a_secret() -> None:
    for path in CHART.glob("values*.yaml"):
        given = yaml.safe_load(path.read_text()).get("secrets", {})
        assert not given.get("values"), path.name


@ALL
def test_services_and_workers_do_not_hold_the_keys_of_the_control_plane(values: str) -> None:
    for name, pod in pods(values).items():
        own = {"LUCIUS_CALLBACK_KEYS", "LUCIUS_WEBHOOK_SECRET"} & variables(pod, values).keys()
        control = name in ("acme-orchestrator", "acme-reconciler", "acme-invoker")
        assert bool(own) is control, name


def holders(setting: str, values: str, *sets: str) -> set[str]:
    """The pods that read it from the Secret, by file or variable."""
    return {
        name.removeprefix("acme-")
        for name, pod in pods(values, *sets).items()
        if variables(pod, values, *sets).get(setting, "").startswith("secret:")
    }


CONTROL = {"orchestrator", "reconciler"}
SERVICES = {
    f"{name}-{mode}" for name in ("ocr", "embedding", "sis") for mode in ("default", "burst")
}
NO_IDENTITY = (
    "storage.accountUrl=",
    "workspace.accountUrl=",
    "bus.namespace=",
    "config.endpoint=",
)


@pytest.mark.parametrize(
    ("setting", "sets", "pods_with_it"),
    [
        (
            "LUCIUS_CONSOLE_CLIENT_SECRET",
            ("secrets.env.LUCIUS_CONSOLE_CLIENT_SECRET=x",),
            {"orchestrator"},
        ),
        ("LUCIUS_NATS_PASSWORD", ("secrets.env.LUCIUS_NATS_PASSWORD=x",), CONTROL | SERVICES),
        ("LUCIUS_NATS_URL", ("secrets.env.LUCIUS_NATS_URL=x",), CONTROL | SERVICES),
        (
            "LUCIUS_ANSWER_KEY",
            ("services.sis.secrets.LUCIUS_ANSWER_KEY=x",),
            {"sis-default", "sis-burst"},
        ),
        ("LUCIUS_TABLE_CONNECTION", NO_IDENTITY, CONTROL | {"provision-1"}),
        ("LUCIUS_APPCONFIG_CONNECTION", NO_IDENTITY, CONTROL | {"provision-1"}),
        ("LUCIUS_SERVICEBUS_CONNECTION", NO_IDENTITY, CONTROL | SERVICES | {"provision-1"}),
        ("LUCIUS_BLOB_CONNECTION", NO_IDENTITY, CONTROL | SERVICES),
        (
            "LUCIUS_TABLE_CONNECTION",
            (*NO_IDENTITY, "settings.LUCIUS_SERVICE_RECORDS_TABLE=records"),
            CONTROL | SERVICES | {"provision-1"},
        ),
    ],
)
def test_a_secret_reaches_the_pods_that_read_it_and_no_others(
    setting: str, sets: tuple[str, ...], pods_with_it: set[str]
) -> None:
    assert holders(setting, "azure", *sets) == pods_with_it


def test_the_secrets_of_temporal_reach_those_who_speak_to_it() -> None:
    for setting in ("LUCIUS_INVOKER_SECRET", "LUCIUS_TEMPORAL_API_KEY"):
        sets = ("temporal.apiKey=true",)
        assert holders(setting, "temporal", *sets) == {"orchestrator", "invoker", "worker"}


def test_the_chart_knows_every_secret_setting() -> None:
    assert yaml.safe_load((CHART / "secrets.yaml").read_text()).keys() == SECRET


def test_with_identities_no_connection_comes_from_a_secret() -> None:
    for pod in pods("azure").values():
        found = variables(pod, "azure").values()
        assert {each for each in found if each.startswith("secret:")} <= {
            "secret:callback-keys",
            "secret:webhook-secret",
        }


def test_a_pod_has_the_identity_of_its_part() -> None:
    clients = {
        name: account["metadata"]["annotations"]["azure.workload.identity/client-id"]
        for name, account in of_kind("ServiceAccount", "azure").items()
    }
    assert {name: client[0] for name, client in clients.items()} == {
        "acme-control-plane": "1",
        "acme-provision": "3",
        "acme-service-ocr": "4",
        "acme-service-embedding": "5",
        "acme-service-sis": "6",
    }
    for pod in pods("azure").values():
        assert pod["metadata"]["labels"]["azure.workload.identity/use"] == "true"
        assert pod["spec"]["serviceAccountName"] in clients
    for pod in pods("nats").values():
        assert "azure.workload.identity/use" not in pod["metadata"]["labels"]


def command_of(args: list[str]) -> tuple[click.Command, list[str]]:
    """The verb that the arguments name, and what is left of them."""
    command: click.Command = main
    rest = list(args)
    while isinstance(command, click.Group) and not rest[0].startswith("-"):
        command = command.commands[rest.pop(0)]
    return command, rest


def unknown_flags(args: list[str]) -> set[str]:
    command, rest = command_of(args)
    known = {flag for each in command.params for flag in each.opts}
    return {each for each in rest if each.startswith("--")} - known


@ALL
def test_every_verb_is_one_of_the_command_line(values: str) -> None:
    for pod in pods(values).values():
        assert isinstance(command_of(container(pod)["args"])[0], click.Command)


@ALL
def test_every_flag_is_one_of_its_verb(values: str) -> None:
    for name, pod in pods(values).items():
        assert unknown_flags(container(pod)["args"]) - {HEALTH} == set(), name


@pytest.mark.parametrize("verb", [["reconciler"], ["service", "run", "a:B"]])
def test_a_verb_without_an_api_has_a_port_for_probes(verb: list[str]) -> None:
    assert unknown_flags([*verb, HEALTH, "8701"]) == set()


@ALL
def test_every_probe_asks_a_route(values: str) -> None:
    for pod in pods(values).values():
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe in container(pod):
                assert container(pod)[probe]["httpGet"]["path"] in routes()
    for monitor in of_kind("ServiceMonitor", values).values():
        assert monitor["spec"]["endpoints"][0]["path"] in routes()


def test_every_scaler_asks_a_route() -> None:
    for scaler in of_kind("ScaledObject", "azure").values():
        path = urlsplit(scaler["spec"]["triggers"][0]["metadata"]["url"]).path
        service = scaler["metadata"]["name"].split("-")[1]
        assert path.replace(service, "{service}") in routes()


def test_only_provisioning_runs_with_the_right_to_manage() -> None:
    jobs = of_kind("Job", "azure")
    assert list(jobs) == ["acme-provision-1"]
    pod = jobs["acme-provision-1"]["spec"]["template"]
    assert container(pod)["args"] == ["bus", "provision"]
    assert pod["spec"]["serviceAccountName"] == "acme-provision"
    assert of_kind("Job", "nats") == of_kind("Job", "azure", "bus.provision=false") == {}


def test_commands_of_the_notes_exist() -> None:
    text = (CHART / "templates/NOTES.txt").read_text()
    found = re.findall(r"-- lucius ([a-z ]+ --role .*?)\)", text)
    assert len(found) == 2
    for each in found:
        assert unknown_flags(each.split()) == set()
    assert (DEPLOY / "Containerfile").exists()


def test_protocols_of_the_values_are_read_beside_the_packaged_ones() -> None:
    given = r"config.protocols.mine\.yaml=protocols: {}"
    files = "config.source=files"
    assert of_kind("ConfigMap", "azure", given, files)["acme-protocols"]["data"] == {
        "mine.yaml": "protocols: {}"
    }
    pod = pods("azure", given, files)["acme-orchestrator"]
    found = variables(pod, "azure", given, files)
    assert found["LUCIUS_PROTOCOLS"] == "packaged,/etc/lucius/protocols"
    mounts = {each["mountPath"]: each["name"] for each in container(pod)["volumeMounts"]}
    assert mounts["/etc/lucius/protocols"] == "protocols"
