"""What KEDA takes, as its documentation says: no published set of Kubernetes schemas has its kinds.

A field that is not here is refused, so that one which is mistyped is found: KEDA itself would drop it.
"""

from typing import Any, Final

import jsonschema_rs

TEXT: Final = {"type": "string", "minLength": 1}
COUNT: Final = {"type": "integer", "minimum": 0}


def record(required: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": required.split(),
        "additionalProperties": False,
    }


def many(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def texts(required: str, *others: str) -> dict[str, Any]:
    """Parameters of a scaler: all of them are written as text."""
    return record(required, **dict.fromkeys([*required.split(), *others], TEXT))


PARAMETERS: Final = {
    "azure-servicebus": texts(
        "topicName subscriptionName",
        "namespace",
        "messageCount",
        "activationMessageCount",
        "connectionFromEnv",
        "cloud",
        "endpointSuffix",
    ),
    "metrics-api": texts(
        "url valueLocation",
        "targetValue",
        "activationTargetValue",
        "format",
        "authMode",
        "method",
        "keyParamName",
        "unsafeSsl",
    ),
}
"""Of the scalers that the chart uses."""
METRIC: Final = {"enum": ["AverageValue", "Value"]}
"""`Utilization` is for CPU and memory alone."""
TRIGGER: Final = {
    "oneOf": [
        record(
            "type metadata",
            type={"const": scaler},
            metadata=parameters,
            name=TEXT,
            useCachedMetrics={"type": "boolean"},
            metricType=METRIC,
            authenticationRef=record(
                "name", name=TEXT, kind={"enum": ["TriggerAuthentication", "ClusterTriggerAuthentication"]}
            ),
        )
        for scaler, parameters in PARAMETERS.items()
    ]
}  # fmt: skip
SCALED_OBJECT: Final = record(
    "scaleTargetRef triggers",
    scaleTargetRef=record("name", apiVersion=TEXT, kind=TEXT, name=TEXT, envSourceContainerName=TEXT),
    pollingInterval={"type": "integer", "minimum": 1},
    cooldownPeriod=COUNT,
    initialCooldownPeriod=COUNT,
    idleReplicaCount=COUNT,
    minReplicaCount=COUNT,
    maxReplicaCount={"type": "integer", "minimum": 1},
    fallback=record(
        "failureThreshold replicas",
        failureThreshold=COUNT,
        replicas=COUNT,
        behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]},
    ),
    advanced={"type": "object"},
    triggers=many(TRIGGER),
)  # fmt: skip
TRIGGER_AUTHENTICATION: Final = record(
    podIdentity=record(
        "provider",
        provider={"enum": ["azure-workload", "gcp", "aws", "aws-eks", "none"]},
        identityId=TEXT,
        identityTenantId=TEXT,
        identityAuthorityHost=TEXT,
    ),
    secretTargetRef=many(record("parameter name key", parameter=TEXT, name=TEXT, key=TEXT)),
    configMapTargetRef=many(record("parameter name key", parameter=TEXT, name=TEXT, key=TEXT)),
    env=many(record("parameter name", parameter=TEXT, name=TEXT, containerName=TEXT)),
)
KINDS: Final = {
    "ScaledObject": SCALED_OBJECT,
    "TriggerAuthentication": TRIGGER_AUTHENTICATION,
}


def validate(each: dict[str, Any]) -> None:
    """Raises jsonschema_rs.ValidationError."""
    head = {"apiVersion": {"const": "keda.sh/v1alpha1"}, "kind": {"const": each["kind"]}}
    metadata = record(
        "name", name=TEXT, namespace=TEXT, labels={"type": "object"}, annotations={"type": "object"}
    )
    schema = record(
        "apiVersion kind metadata spec", **head, metadata=metadata, spec=KINDS[each["kind"]]
    )
    jsonschema_rs.validate(schema, each)
