"""KEDA scales each service and mode by its backlog."""

import pytest

from lucius.core.routing import LANES, directive_topics, subscriptions_of
from tests.deploy.chart import of_kind, refusal

SERVICES = ("ocr", "embedding", "sis")


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    ("mode", "least", "most", "fallback"), [("default", 1, 20, 3), ("burst", 0, 5, 1)]
)
def test_a_service_is_scaled_by_the_backlog_of_a_mode(
    service: str, mode: str, least: int, most: int, fallback: int
) -> None:
    name = f"acme-{service}-{mode}"
    scaler = of_kind("ScaledObject", "azure")[name]
    assert scaler["apiVersion"] == "keda.sh/v1alpha1"
    url = "http://acme-orchestrator.documents.svc:8700/v1/admin/backlog"
    assert scaler["spec"] == {
        "scaleTargetRef": {"name": name},
        "minReplicaCount": least,
        "maxReplicaCount": most,
        "pollingInterval": 15,
        "cooldownPeriod": 300,
        "fallback": {"failureThreshold": 4, "replicas": fallback},
        "triggers": [
            {
                "type": "metrics-api",
                "metricType": "AverageValue",
                "metadata": {
                    "url": f"{url}/{service}?mode={mode.upper()}",
                    "valueLocation": "backlog",
                    "targetValue": "8",
                    "activationTargetValue": "0",
                    "authMode": "apiKey",
                    "method": "header",
                    "keyParamName": "X-Api-Key",
                },
                "authenticationRef": {"name": "acme-keda"},
            }
        ],
    }


def test_keda_shows_an_api_key_of_a_secret() -> None:
    (found,) = of_kind("TriggerAuthentication", "azure").values()
    assert found["metadata"]["name"] == "acme-keda"
    assert found["spec"] == {
        "secretTargetRef": [{"parameter": "apiKey", "name": "lucius-keda", "key": "api-key"}]
    }


def test_with_jwt_keda_shows_a_token() -> None:
    jwt = (
        "auth.mode=jwt",
        "auth.jwt.issuer=https://login.example",
        "auth.jwt.audience=lucius",
        "auth.jwt.jwksUrl=https://login.example/keys",
    )
    (found,) = of_kind("TriggerAuthentication", "azure", *jwt).values()
    assert found["spec"]["secretTargetRef"][0]["parameter"] == "token"
    trigger = of_kind("ScaledObject", "azure", *jwt)["acme-ocr-burst"]["spec"]["triggers"][0]
    assert trigger["metadata"]["authMode"] == "bearer"


@pytest.mark.parametrize("values", ["azure", "nats"])
def test_every_scaler_has_its_deployment_and_no_deployment_fixes_its_number(values: str) -> None:
    deployments = of_kind("Deployment", values)
    scalers = of_kind("ScaledObject", values)
    assert len(scalers) == 2 * len(SERVICES)
    for name in scalers:
        assert "replicas" not in deployments[name]["spec"]


@pytest.mark.parametrize("values", ["azure", "nats"])
def test_burst_may_have_fewer_replicas_than_default(values: str) -> None:
    scalers = of_kind("ScaledObject", values)
    for service in SERVICES:
        burst = scalers[f"acme-{service}-burst"]["spec"]["maxReplicaCount"]
        assert burst < scalers[f"acme-{service}-default"]["spec"]["maxReplicaCount"]


def test_a_replica_is_added_for_as_many_directives_as_it_has_slots() -> None:
    slots = "services.ocr.slots=3"
    scaler = of_kind("ScaledObject", "azure", slots)["acme-ocr-default"]
    assert scaler["spec"]["triggers"][0]["metadata"]["targetValue"] == "3"
    deployment = of_kind("Deployment", "azure", slots)["acme-ocr-default"]
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[args.index("--slots") + 1] == "3"


def test_without_keda_the_number_is_fixed() -> None:
    assert of_kind("ScaledObject", "trial") == of_kind("TriggerAuthentication", "trial") == {}
    assert of_kind("Deployment", "trial")["acme-ocr-default"]["spec"]["replicas"] == 1
    azure = of_kind("Deployment", "azure", "keda.enabled=false")
    assert azure["acme-ocr-default"]["spec"]["replicas"] == 3, (
        "fallbackReplicas, until KEDA has its key"
    )
    none = of_kind("Deployment", "trial", "services.ocr.modes.default.replicas=0")
    assert none["acme-ocr-default"]["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("topology", "topic", "subscription"),
    [
        ("filtered", "t-global-bus-p{}", "ocr-burst"),
        ("isolated", "t-global-burst-p{}", "ocr"),
    ],
)
def test_a_service_may_be_scaled_by_its_subscriptions(
    topology: str, topic: str, subscription: str
) -> None:
    """Names are those of the product: see the topics and subscriptions that it provisions."""
    sets = (
        "keda.trigger=servicebus",
        "keda.identity=me",
        f"bus.topology={topology}",
        "settings.LUCIUS_SERVICEBUS_PREFIX=t-",
    )
    scaler = of_kind("ScaledObject", "azure", *sets)["acme-ocr-burst"]["spec"]
    assert [each["metadata"] for each in scaler["triggers"]] == [
        {
            "namespace": "NAME",
            "topicName": topic.format(lane),
            "subscriptionName": subscription,
            "messageCount": "8",
            "activationMessageCount": "0",
        }
        for lane in range(LANES)
    ]
    assert {each["type"] for each in scaler["triggers"]} == {"azure-servicebus"}
    provisioned = {
        (f"t-{each}", name)
        for each in directive_topics(topology)
        for name, _ in subscriptions_of("ocr", topology)
    }
    for each in scaler["triggers"]:
        named = each["metadata"]["topicName"], each["metadata"]["subscriptionName"]
        assert named in provisioned
    (authentication,) = of_kind("TriggerAuthentication", "azure", *sets).values()
    assert authentication["spec"] == {
        "podIdentity": {"provider": "azure-workload", "identityId": "me"}
    }


def test_without_an_identity_the_scaler_has_the_connection_of_the_secret() -> None:
    sets = ("keda.trigger=servicebus", "bus.topology=filtered", "bus.namespace=")
    (authentication,) = of_kind("TriggerAuthentication", "azure", *sets).values()
    assert authentication["spec"]["secretTargetRef"] == [
        {"parameter": "connection", "name": "lucius", "key": "servicebus-connection"}
    ]
    scaler = of_kind("ScaledObject", "azure", *sets)["acme-ocr-burst"]["spec"]
    assert "namespace" not in scaler["triggers"][0]["metadata"]


def test_burst_with_as_many_replicas_as_default_is_refused() -> None:
    said = refusal("template", "azure", "services.ocr.modes.burst.maxReplicas=20")
    assert "services.ocr.modes.burst.maxReplicas is 20 and that of default is 20" in said
