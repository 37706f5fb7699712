"""NetworkPolicies: who may call whom."""

from typing import Any

import pytest

from tests.deploy.chart import of_kind, pods

METADATA_SERVICE = "169.254.169.254/32"


def spec(name: str, *sets: str) -> dict[str, Any]:
    return dict(of_kind("NetworkPolicy", "azure", *sets)[name]["spec"])


def namespaces(rule: dict[str, Any]) -> set[str]:
    return {
        peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        for peer in rule["from"]
        if "namespaceSelector" in peer
    }


def test_every_pod_is_closed_but_for_prometheus() -> None:
    policy = spec("acme")
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    wanted = policy["podSelector"]["matchLabels"].items()
    assert all(wanted <= pod["metadata"]["labels"].items() for pod in pods("azure").values())
    (rule,) = policy["ingress"]
    assert namespaces(rule) == {"monitoring"}
    assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]


def test_the_api_is_open_to_this_release_to_keda_and_to_named_clients() -> None:
    client = (
        "networkPolicy.clients[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name"
    )
    policy = spec("acme-api", f"{client}=ingress-nginx")
    assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "orchestrator"
    (rule,) = policy["ingress"]
    assert namespaces(rule) == {"kube-system", "ingress-nginx"}
    (here,) = [peer["podSelector"] for peer in rule["from"] if "podSelector" in peer]
    assert here["matchLabels"]["app.kubernetes.io/instance"] == "acme"


def test_out_go_names_the_api_and_the_ports_that_are_listed() -> None:
    names, api, world = spec("acme")["egress"]
    assert names["to"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
        {"ipBlock": {"cidr": "169.254.10.10/32"}},
        {"ipBlock": {"cidr": "169.254.10.11/32"}},
    ], "CoreDNS, and LocalDNS on the machines of AKS"
    assert {port["port"] for port in names["ports"]} == {53}
    assert [port["port"] for port in api["ports"]] == [8700]
    assert [port["port"] for port in world["ports"]] == [443, 5671]
    assert world["to"] == [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": [METADATA_SERVICE]}},
        {"namespaceSelector": {}},
    ]


@pytest.mark.parametrize(("values", "port"), [("nats", 4222), ("temporal", 7233)])
def test_a_server_in_the_cluster_is_reached(values: str, port: int) -> None:
    """For Cilium a range of addresses has no pods in it, so that the pods are named besides."""
    world = of_kind("NetworkPolicy", values)["acme"]["spec"]["egress"][-1]
    assert port in [each["port"] for each in world["ports"]]
    assert {"namespaceSelector": {}} in world["to"]
