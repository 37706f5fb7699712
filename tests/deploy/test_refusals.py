"""Values that cannot work are refused with a sentence that names the value and what to set.

Types, names and choices are in the schema, which `helm lint` checks too; what only several values together
show is refused by whatever renders the chart: `helm template`, `install` and `upgrade`.
"""

import pytest

from lucius.app.settings.loading import ROWS
from tests.deploy.chart import helm, refusal


@pytest.mark.parametrize("verb", ["lint", "template"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "reconciler.replicas=two",
            "reconciler.replicas: Invalid type. Expected: integer, given: string",
        ),
        ("reconciler.replicas=17", "reconciler.replicas: Must be less than or equal to 16"),
        ("drainSeconds=soon", "drainSeconds: Invalid type. Expected: integer"),
        (
            "storage.backend=sqlite",
            'storage.backend must be one of the following: "ledger", "table"',
        ),
        ("bus.backend=memory", 'bus.backend must be one of the following: "servicebus", "nats"'),
        ("auth.mode=none", 'auth.mode must be one of the following: "keys", "jwt"'),
        ("reconciler.replica=2", "Additional property replica is not allowed"),
        ("workspace.url=file:///srv", "workspace.url: Does not match pattern"),
        ("services.ocr.run=ocr.py", "services.ocr.run: Does not match pattern"),
        ("settings.LUCIUS_LEASE_SECONDS=600", "Expected: string, given: integer"),
        ("settings.LEASE_SECONDS=x", 'Property name of "LEASE_SECONDS" does not match'),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(verb: str, given: str, said: str) -> None:
    assert said in refusal(verb, "azure", given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("image.repository=", "image.repository is empty: set it to the image"),
        ("secrets.create=true", "secrets.existing is lucius and secrets.create is true"),
        ("auth.mode=jwt", "auth.jwt.issuer is empty and auth.mode is jwt"),
        ("ingress.enabled=true", "ingress.host is empty: set the name under which clients call"),
        (
            "ingress.enabled=true,ingress.host=x",
            "networkPolicy.clients is empty: nobody outside could call",
        ),
        ("services.ocr.modes.default.replicas=2", "replicas is 2 and keda.enabled is true"),
        ("services.ocr.modes.default.minReplicas=30", "minReplicas is 30 and maxReplicas is 20"),
        (
            "services.a.run=b:C,services.a.modes.burst.minReplicas=1",
            "has no maxReplicas or no fallbackReplicas",
        ),
        ("orchestrator.autoscaling.minReplicas=9", "minReplicas is 9 and maxReplicas is 6"),
        (
            "settings.LUCIUS_NATS_URL=nats://user:password@host",
            "LUCIUS_NATS_URL holds credentials and would be stored in a ConfigMap",
        ),
        (
            "settings.LUCIUS_ANSWER_URL=https://host/v1?key=abc",
            "LUCIUS_ANSWER_URL holds credentials",
        ),
        ("settings.LUCIUS_ANSWER_URL=https://host/api?code=abc", "LUCIUS_ANSWER_URL holds"),
        ("bus.natsUrl=nats://user:password@host", "bus.natsUrl holds credentials"),
        (
            "storage.accountUrl=https://name.table.core.windows.net/?sv=1&sig=abc",
            "LUCIUS_TABLE_CONNECTION holds credentials",
        ),
        (
            "workspace.accountUrl=https://name.blob.core.windows.net/?sv=1&sig=abc",
            "LUCIUS_BLOB_CONNECTION holds credentials",
        ),
        ("workspace.url=https://user:password@host/c", "LUCIUS_WORKSPACE_URL holds credentials"),
        ("config.endpoint=https://host?key=abc", "LUCIUS_APPCONFIG_CONNECTION holds credentials"),
        ("publicUrl=https://user:password@host", "LUCIUS_PUBLIC_URL holds credentials"),
        (
            "secrets.env.LUCIUS_ANSWER_KEY=answer-key",
            "set services.NAME.secrets.LUCIUS_ANSWER_KEY for the service that does",
        ),
        (
            "services.a.run=b:C,services.a.processes=2,services.a.modes.default.maxReplicas=1",
            "services.a has only one of processes and processMemoryMiB",
        ),
        (
            "services.ocr.resources.limits.memory=3Gi",
            "services.ocr.resources.limits is set beside processes",
        ),
        ("keda.trigger=servicebus", "has two modes in one subscription: set bus.topology"),
        (
            "keda.trigger=servicebus,bus.backend=nats",
            "keda.trigger is servicebus and bus.backend is",
        ),
        ("settings.LUCIUS_AUTH=keys", "settings.LUCIUS_AUTH: this setting has a value of its own"),
    ],
)
def test_values_that_contradict_each_other_are_refused(given: str, said: str) -> None:
    assert said in refusal("template", "azure", given)


@pytest.mark.parametrize("name", sorted(row.env for row in ROWS.values() if row.secret))
def test_a_secret_among_the_plain_settings_is_refused_with_one_line(name: str) -> None:
    said = refusal("template", "azure", f"settings.{name}=abc")
    assert f"settings.{name} is a secret and would be stored in a ConfigMap" in said
    assert len([line for line in said.splitlines() if line.startswith("Error")]) == 1


def test_fixed_replicas_beside_the_autoscaler_are_refused() -> None:
    said = refusal("template", "azure", "orchestrator.replicas=3")
    assert "orchestrator.replicas is 3 and orchestrator.autoscaling.enabled is true" in said
    assert helm("template", "azure", "orchestrator.replicas=null").returncode == 0


def test_a_missing_secret_is_refused_with_the_keys_that_it_needs() -> None:
    said = refusal("template", "azure", "secrets.existing=")
    assert "name a Secret with the keys callback-keys, webhook-secret (or" in said
    said = refusal("template", "nats", "secrets.existing=", "bus.natsUrl=")
    assert "blob-connection, callback-keys, nats-url, table-connection, webhook-secret" in said


@pytest.mark.parametrize(
    "key", ["callback-keys", "webhook-secret", "table-connection", "blob-connection", "nats-url"]
)
def test_a_trial_without_one_of_its_secrets_is_refused(key: str) -> None:
    said = refusal("template", "trial", f"secrets.values.{key}=")
    assert f"secrets.create is true and secrets.values.{key} is empty" in said
