"""Each values file renders to objects that Kubernetes takes, with what a safe rollout needs."""

import re
import subprocess
import tarfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from lucius import __version__
from lucius.app.lifecycle import CLOSING
from lucius.app.services import PACKAGED_SERVICES
from lucius.platform.service import MIB, OWN_MEMORY
from lucius.services.sheets import TEXT_MEMORY, ocr_memory
from tests.deploy import keda
from tests.deploy.chart import (
    CHART,
    DEPLOY,
    FILES,
    HELM,
    container,
    helm,
    of_kind,
    pods,
    rendered,
)

KUBERNETES = "1.31"
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
"""Kinds that Kubernetes has no schema of; tests assert their fields."""
UNITS = {"": Decimal(1), "m": Decimal("0.001"), "Mi": Decimal(2**20), "Gi": Decimal(2**30)}
ALL = pytest.mark.parametrize("values", FILES)


def amount(quantity: Any) -> Decimal:
    text = str(quantity)
    number = text.rstrip("miGM")
    return Decimal(number) * UNITS[text[len(number) :]]


def test_every_values_file_is_tested() -> None:
    found = {path.stem.removeprefix("values-") for path in CHART.glob("values-*.yaml")}
    assert found == set(FILES)


@ALL
def test_helm_finds_no_fault(values: str) -> None:
    done = helm("lint", values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@ALL
def test_kubernetes_takes_every_object(values: str) -> None:
    unknown = set()
    for each in rendered(values):
        if each["kind"] in keda.KINDS:
            keda.validate(each)
            continue
        try:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            unknown.add(each["kind"])
    assert unknown <= CUSTOM


OPEN = (
    "ingress.enabled=true",
    "ingress.host=lucius.example",
    "ingress.className=nginx",
    "ingress.tlsSecret=tls",
    "networkPolicy.clients[0].podSelector.matchLabels.app=proxy",
)


@pytest.mark.parametrize(
    "sets",
    [
        ("services=null",),
        ("services=null", "monitoring.enabled=false", "quota.enabled=false"),
        OPEN,
        ("nodeSelector.disk=fast", "tolerations[0].key=batch", "tolerations[0].operator=Exists"),
        ("image.pullSecrets[0]=registry", f"image.digest=sha256:{'0' * 64}"),
        ("storage.accountUrl=", "workspace.accountUrl=", "bus.namespace=", "config.endpoint="),
        ("secrets.env.LUCIUS_URL=url", "keda.enabled=false", "services.ocr.image=mine:1"),
        ("monitoring.labels.release=prometheus", "services.ocr.slots=2", "storage.backend=table"),
    ],
)
def test_kubernetes_takes_every_object_whatever_is_chosen(sets: tuple[str, ...]) -> None:
    for each in rendered("azure", *sets):
        if each["kind"] in keda.KINDS:
            keda.validate(each)
        elif each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_the_packaged_chart_holds_the_alerts(tmp_path: Path) -> None:
    subprocess.run(
        [HELM, "package", CHART, "-d", tmp_path], check=True, capture_output=True, timeout=60
    )
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as packed:
        member = packed.extractfile("lucius/alerts/lucius.yaml")
        assert member is not None
        assert member.read() == (DEPLOY / "alerts/lucius.yaml").read_bytes()


def test_the_chart_is_of_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    page = (CHART.parents[1] / "docs/how-to/azure.md").read_text("utf-8")
    assert set(re.findall(r":(\d+\.\d+\.\d+)\b", page)) == {__version__}


@pytest.mark.parametrize("trigger", ["servicebus", "backlog"])
def test_keda_takes_its_objects_and_a_field_that_it_does_not_know_is_found(trigger: str) -> None:
    sets = (f"keda.trigger={trigger}", "keda.identity=me", "bus.topology=filtered")
    (scaler, *_) = of_kind("ScaledObject", "azure", *sets).values()
    (access,) = of_kind("TriggerAuthentication", "azure", *sets).values()
    for each in (scaler, access):
        keda.validate(each)
        with pytest.raises(jsonschema_rs.ValidationError, match="replica"):
            keda.validate(each | {"spec": each["spec"] | {"replicaCount": 2}})
    first = scaler["spec"]["triggers"][0]
    for wrong in ({"messagecount": "8"}, {"targetValue": 8}):
        metadata = first["metadata"] | wrong
        broken = scaler["spec"] | {"triggers": [first | {"metadata": metadata}]}
        with pytest.raises(jsonschema_rs.ValidationError):
            keda.validate(scaler | {"spec": broken})


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    deployment = of_kind("Deployment", "azure")["acme-orchestrator"]
    wrong = deployment | {"spec": deployment["spec"] | {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@ALL
def test_names_are_unique(values: str) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered(values)]
    assert len(names) == len(set(names))


@ALL
def test_a_pod_has_no_more_rights_than_it_needs(values: str) -> None:
    for name, pod in pods(values).items():
        spec, only = pod["spec"], container(pod)
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert only["securityContext"]["readOnlyRootFilesystem"] is True
        assert only["securityContext"]["allowPrivilegeEscalation"] is False
        assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert (
            {"cpu", "memory"}
            == set(only["resources"]["limits"])
            == set(only["resources"]["requests"])
        )


@ALL
def test_what_is_written_is_on_a_volume(values: str) -> None:
    for pod in pods(values).values():
        mounts = {each["mountPath"] for each in container(pod)["volumeMounts"]}
        assert {"/tmp", "/var/lib/lucius"} <= mounts


@ALL
def test_the_grace_period_is_longer_than_the_drain(values: str) -> None:
    drain = 45
    found = pods(values, f"drainSeconds={drain}")
    for name, each in of_kind("Deployment", values, f"drainSeconds={drain}").items():
        spec = found[name]["spec"]
        before = container(found[name]).get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        rest = spec["terminationGracePeriodSeconds"] - before.get("seconds", 0)
        assert rest > drain + CLOSING.total_seconds(), each["metadata"]["name"]


@ALL
def test_whatever_runs_for_long_is_probed_and_has_a_budget(values: str) -> None:
    budgets = of_kind("PodDisruptionBudget", values)
    for name, deployment in of_kind("Deployment", values).items():
        only = container(deployment["spec"]["template"])
        ports = {port["name"]: port["containerPort"] for port in only["ports"]}
        paths = {
            probe: (only[probe]["httpGet"]["path"], ports[only[probe]["httpGet"]["port"]])
            for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        }
        port = {"acme-orchestrator": 8700, "acme-invoker": 8710}.get(name, 8701)
        assert paths == {
            "startupProbe": ("/healthz", port),
            "livenessProbe": ("/healthz", port),
            "readinessProbe": ("/readyz", port),
        }
        assert budgets[name]["spec"]["maxUnavailable"] == 1
        assert budgets[name]["spec"]["selector"] == deployment["spec"]["selector"]


def test_orchestrator_and_reconciler_run_twice() -> None:
    (scaler,) = of_kind("HorizontalPodAutoscaler", "azure").values()
    assert scaler["spec"]["minReplicas"] == 2
    assert scaler["spec"]["scaleTargetRef"]["name"] == "acme-orchestrator"
    deployments = of_kind("Deployment", "azure")
    assert "replicas" not in deployments["acme-orchestrator"]["spec"]
    assert deployments["acme-reconciler"]["spec"]["replicas"] == 2


def test_without_autoscaling_the_number_is_fixed() -> None:
    off = "orchestrator.autoscaling.enabled=false"
    assert of_kind("HorizontalPodAutoscaler", "azure", off) == {}
    spec = of_kind("Deployment", "azure", off)["acme-orchestrator"]["spec"]
    assert spec["replicas"] == 2
    spec = of_kind("Deployment", "azure", off, "orchestrator.replicas=3")["acme-orchestrator"][
        "spec"
    ]
    assert spec["replicas"] == 3


@pytest.mark.parametrize("values", ["azure", "nats", "temporal"])
def test_the_quota_has_room_for_every_replica_that_may_be_asked_for(values: str) -> None:
    hard = of_kind("ResourceQuota", values)["acme"]["spec"]["hard"]
    most = {"acme-reconciler": 2 + 1, "acme-provision-1": 1, "acme-invoker": 2 + 1}
    for name, each in of_kind("HorizontalPodAutoscaler", values).items():
        most[name] = each["spec"]["maxReplicas"] + 1
    for name, each in of_kind("ScaledObject", values).items():
        most[name] = each["spec"]["maxReplicaCount"] + 1
    needed = {"pods": Decimal(sum(most.values()))}
    for name, pod in pods(values).items():
        for part, amounts in container(pod)["resources"].items():
            for resource, quantity in amounts.items():
                key = f"{part}.{resource}"
                needed[key] = needed.get(key, Decimal(0)) + most[name] * amount(quantity)
    assert {key for key, value in needed.items() if value > amount(hard[key])} == set()


@pytest.mark.parametrize("values", ["azure", "nats", "temporal"])
def test_no_container_asks_for_more_than_the_limit_range_grants(values: str) -> None:
    (limit,) = of_kind("LimitRange", values)["acme"]["spec"]["limits"]
    for pod in pods(values).values():
        for resource, quantity in container(pod)["resources"]["limits"].items():
            assert amount(quantity) <= amount(limit["max"][resource])


def test_the_alerts_are_those_of_the_repository() -> None:
    (rule,) = of_kind("PrometheusRule", "azure").values()
    source = DEPLOY / "alerts/lucius.yaml"
    assert rule["spec"]["groups"] == yaml.safe_load(source.read_text())["groups"]
    assert (CHART / "alerts/lucius.yaml").resolve() == source.resolve()


def test_prometheus_scrapes_every_process_with_its_key() -> None:
    (monitor,) = of_kind("ServiceMonitor", "azure").values()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["authorization"] == {
        "type": "Bearer",
        "credentials": {"name": "lucius-metrics", "key": "api-key"},
    }
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = of_kind("Service", "azure")
    assert all(wanted <= each["metadata"]["labels"].items() for each in services.values())
    for name, deployment in of_kind("Deployment", "azure").items():
        labels = deployment["spec"]["template"]["metadata"]["labels"].items()
        chosen = [each for each in services.values() if each["spec"]["selector"].items() <= labels]
        assert len(chosen) == 1, f"{name} would be scraped {len(chosen)} times"
        assert chosen[0]["spec"]["ports"][0]["name"] == endpoint["port"]


PACKAGED: dict[str, Callable[[int], int]] = {
    "ocr": ocr_memory,
    "embedding": lambda cores: TEXT_MEMORY,
    "sis": lambda cores: TEXT_MEMORY,
}
"""Bytes that one process may take, by the cores of its container."""


@ALL
def test_the_memory_of_a_service_is_that_of_all_its_processes_at_their_limit(values: str) -> None:
    services = yaml.safe_load((CHART / f"values-{values}.yaml").read_text())["services"]
    assert {kind.name for kind in PACKAGED_SERVICES} == PACKAGED.keys() >= services.keys()
    for name, each in services.items():
        limits = container(pods(values)[f"acme-{name}-default"])["resources"]["limits"]
        cores = int(amount(limits["cpu"]))
        assert cores == each["processes"], "a service has a process for each core"
        assert PACKAGED[name](cores) == each["processMemoryMiB"] * MIB
        assert amount(limits["memory"]) == OWN_MEMORY + cores * PACKAGED[name](cores)
