"""KEDA scales each service and mode by its backlog. No schema covers these objects: every field is here."""

import pytest

from lucius.core.routing import LANES, directive_topics, subscriptions_of
from tests.deploy.chart import of_kind

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


def test_a_replica_is_added_for_as_many_directives_as_it_has_slots() -> None:
    slots = "services.ocr.slots=3"
    scaler = of_kind("ScaledObject", "azure", slots)["acme-ocr-default"]
    assert scaler["spec"]["triggers"][0]["metadata"]["targetValue"] == "3"
    deployment = of_kind("Deployment", "azure", slots)["acme-ocr-default"]
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[args.index("--slots") + 1] == "3"


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
