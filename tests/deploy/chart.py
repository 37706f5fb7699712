"""The chart as Helm renders it: with each of its values files, or as it refuses a change of them."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "chart"
HELM: Final = Path(sys.executable).parent / "helm"
RELEASE: Final = "acme"
NAMESPACE: Final = "documents"
IMAGE: Final = "image.repository=registry.example/lucius"

TRIAL_SECRETS: Final = (
    "secrets.values.callback-keys=k1:0123456789abcdef",
    "secrets.values.webhook-secret=0123456789abcdef",
    "secrets.values.table-connection=UseDevelopmentStorage=true",
    "secrets.values.blob-connection=UseDevelopmentStorage=true",
    "secrets.values.nats-url=nats://nats:4222",
)
FILES: Final[dict[str, tuple[str, ...]]] = {
    "azure": (
        "identity.controlPlane=11111111-1111-1111-1111-111111111111",
        "identity.provision=33333333-3333-3333-3333-333333333333",
        "services.ocr.identity=44444444-4444-4444-4444-444444444444",
        "services.embedding.identity=55555555-5555-5555-5555-555555555555",
        "services.sis.identity=66666666-6666-6666-6666-666666666666",
    ),
    "nats": (),
    "temporal": (),
    "trial": TRIAL_SECRETS,
}
"""The values files, and what a user gives at the command line with each."""

Object = dict[str, Any]


def helm(verb: str, values: str, *sets: str) -> subprocess.CompletedProcess[str]:
    """`lint` or `template` with a values file of the chart; `sets` are `name=value`, typed as Helm does."""
    given = [part for each in (IMAGE, *FILES[values], *sets) for part in ("--set", each)]
    named = [] if verb == "lint" else [RELEASE]
    return subprocess.run(
        [HELM, verb, *named, CHART, "-n", NAMESPACE, "-f", CHART / f"values-{values}.yaml", *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@cache
def rendered(values: str, *sets: str) -> tuple[Object, ...]:
    done = helm("template", values, *sets)
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each)


def of_kind(kind: str, values: str, *sets: str) -> dict[str, Object]:
    """By name."""
    found = (each for each in rendered(values, *sets) if each["kind"] == kind)
    return {each["metadata"]["name"]: each for each in found}


def pods(values: str, *sets: str) -> dict[str, Object]:
    """The pod templates of deployments and jobs, by the name of what makes them."""
    makers = of_kind("Deployment", values, *sets) | of_kind("Job", values, *sets)
    return {name: each["spec"]["template"] for name, each in makers.items()}


def container(pod: Object) -> Object:
    (only,) = pod["spec"]["containers"]
    return dict(only)


def variables(pod: Object, values: str, *sets: str) -> dict[str, str]:
    """Every setting of a pod. What it reads from a Secret, as a file or not, is shown as `secret:KEY`."""
    only = container(pod)
    found: dict[str, str] = {}
    for source in only["envFrom"]:
        found |= of_kind("ConfigMap", values, *sets)[source["configMapRef"]["name"]]["data"]
    files = mounted(pod)
    for each in only["env"] or ():
        name, key = each["name"], each.get("valueFrom", {}).get("secretKeyRef", {}).get("key")
        if name.endswith("_FILE"):
            name, key = name.removesuffix("_FILE"), files[each["value"]]
        found[name] = each["value"] if key is None else f"secret:{key}"
    return found


def mounted(pod: Object) -> dict[str, str]:
    """The files that a pod has from Secrets: path, and key of the Secret."""
    places = {each["name"]: each["mountPath"] for each in container(pod)["volumeMounts"]}
    return {
        f"{places[volume['name']]}/{item['path']}": item["key"]
        for volume in pod["spec"]["volumes"]
        for item in volume.get("secret", {}).get("items", ())
    }


def refusal(verb: str, values: str, *sets: str) -> str:
    """What Helm says against it. It must refuse."""
    done = helm(verb, values, *sets)
    assert done.returncode != 0, f"{sets} was taken"
    return done.stdout + done.stderr
