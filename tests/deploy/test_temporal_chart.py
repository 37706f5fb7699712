"""Jobs on Temporal: two invokers, workers that scale, and who may know and call whom."""

from typing import Any

import pytest

from tests.deploy.chart import container, mounted, of_kind, pods, refusal, variables

VALUES = "temporal"
OF_LEDGER_AND_BUS = {
    "LUCIUS_CALLBACK_KEYS",
    "LUCIUS_WEBHOOK_SECRET",
    "LUCIUS_TABLE_CONNECTION",
    "LUCIUS_BLOB_CONNECTION",
    "LUCIUS_SERVICEBUS_CONNECTION",
}


def settings(name: str, *sets: str) -> dict[str, str]:
    return variables(pods(VALUES, *sets)[name], VALUES, *sets)


def test_invokers_run_twice_and_workers_scale_with_their_cpu() -> None:
    invoker = of_kind("Deployment", VALUES)["acme-invoker"]
    assert invoker["spec"]["replicas"] == 2
    assert container(invoker["spec"]["template"])["args"][0] == "invoker"
    scaler = of_kind("HorizontalPodAutoscaler", VALUES)["acme-worker"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 8)
    assert scaler["scaleTargetRef"]["name"] == "acme-worker"
    assert "replicas" not in of_kind("Deployment", VALUES)["acme-worker"]["spec"]


@pytest.mark.parametrize("name", ["acme-orchestrator", "acme-invoker", "acme-worker"])
def test_they_know_temporal_the_invoker_and_its_secret(name: str) -> None:
    found = settings(name)
    assert found["LUCIUS_TEMPORAL_ENABLED"] == "true"
    assert found["LUCIUS_TEMPORAL_ADDRESS"] == "temporal-frontend.temporal:7233"
    assert found["LUCIUS_INVOKER_URL"] == "http://acme-invoker.documents.svc:8710"
    assert found["LUCIUS_INVOKER_SECRET"] == "secret:invoker-secret"
    assert "LUCIUS_TEMPORAL_API_KEY" not in found


def test_an_api_key_comes_from_the_secret() -> None:
    found = settings("acme-worker", "temporal.apiKey=true")
    assert found["LUCIUS_TEMPORAL_API_KEY"] == "secret:temporal-api-key"


def test_certificates_are_files_of_the_secret_for_who_speaks_to_temporal_alone() -> None:
    own = ("temporal.ca=true", "temporal.certificate=true")
    pod = pods(VALUES, *own)["acme-worker"]
    found, files = settings("acme-worker", *own), mounted(pod)
    assert {name: files[found[f"LUCIUS_TEMPORAL_{name}"]] for name in ("CA", "CERTIFICATE")} == {
        "CA": "temporal-ca",
        "CERTIFICATE": "temporal-certificate",
    }
    assert "LUCIUS_TEMPORAL_CA" in settings("acme-orchestrator", *own)
    assert "LUCIUS_TEMPORAL_CA" not in settings("acme-ocr-default", *own)
    assert "LUCIUS_TEMPORAL_CA" not in settings("acme-worker")


def test_a_worker_has_no_secret_of_ledger_and_bus_and_a_service_none_of_the_invoker() -> None:
    assert not OF_LEDGER_AND_BUS & settings("acme-worker").keys()
    assert settings("acme-invoker").keys() >= OF_LEDGER_AND_BUS
    assert "LUCIUS_INVOKER_SECRET" not in settings("acme-ocr-default")


def peers(policy: dict[str, Any]) -> set[str]:
    (rule,) = policy["spec"]["ingress"]
    return {
        each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in rule["from"]
    }


def test_only_orchestrators_and_workers_call_the_invoker() -> None:
    policies = of_kind("NetworkPolicy", VALUES)
    assert peers(policies["acme-invoker"]) == {"orchestrator", "worker"}
    _, here, world = policies["acme"]["spec"]["egress"]
    assert [each["port"] for each in here["ports"]] == [8700, 8710]
    assert 7233 in [each["port"] for each in world["ports"]]


def test_without_temporal_there_is_none_of_it() -> None:
    assert "acme-invoker" not in pods("azure")
    assert "acme-invoker" not in of_kind("NetworkPolicy", "azure")
    assert "LUCIUS_TEMPORAL_ENABLED" not in variables(pods("azure")["acme-orchestrator"], "azure")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("temporal.address=", "temporal.address is empty: set HOST:PORT"),
        ("worker.minReplicas=9", "worker.minReplicas is 9 and maxReplicas is 8"),
        ("settings.LUCIUS_INVOKER_SECRET=abc", "settings.LUCIUS_INVOKER_SECRET is a secret"),
        ("settings.LUCIUS_TEMPORAL_TASK_QUEUE=mine", "has a value of its own in the chart"),
    ],
)
def test_values_that_cannot_work_are_refused(given: str, said: str) -> None:
    assert said in refusal("template", VALUES, given)
