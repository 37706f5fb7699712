"""The reference policy: what may be named, and what a name must never carry."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.core.references import (
    DEPLOYED_SCHEMES,
    EMBEDDED_SCHEMES,
    MAX_URI,
    ReferencePolicy,
    reference_faults,
    webhook_fault,
)

OPEN = ReferencePolicy()


def codes(value: object, policy: ReferencePolicy = OPEN) -> list[str]:
    return [fault.code for fault in reference_faults(value, "/input_ref", policy)]


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/in/doc.pdf",
        "s3://bucket",
        "gs://bucket/a%20b.pdf",
        "az://container/blob",
        "abfs://container@account.dfs.core.windows.net/path/doc.pdf",
        "abfss://container@account.dfs.core.windows.net/path/doc.pdf",
        "https://example.com:8443/a/b?version=3&page=2#top",
        "https://[2001:db8::1]/x",
        "HTTPS://Example.com/x",
        "file:///data/my document (1).pdf",
        "file://localhost/data/x",
        "s3://bucket/résumé/文書.pdf",
        "s3://bucket/a..b/...",
        "https://example.com/100%25",
    ],
)
def test_ordinary_references_are_allowed(uri: str) -> None:
    assert codes(uri) == []
    assert codes({"uri": uri, "container": "c", "etag": "0x8D"}) == []


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "document.pdf",
        "/etc/passwd",
        "//host/x",
        "s3:bucket/x",
        "s3:///x",
        "https://",
        "https:///x",
        "https://host:port/x",
        "https://host:99999/x",
        "https://[::1/x",
        "https://ho st/x",
        " s3://bucket/x",
        "s3://bucket/x\n",
        "s3://bucket/a\x00b",
        "s3://bucket/a\u202eb",
        "s3://bucket\\x",
        "s3://bucket/../other",
        "s3://bucket/a/%2e%2E/b",
        "s3://bucket/a/%252e%252e/b",
        "s3://bucket/a%00",
        "s3://bucket/a%5c..%5cb",
        "s3://bucket/%25252525252e",
        "file://host/share/x",
        "s3://bucket/" + "x" * MAX_URI,
        "s3://bucket/\ud800",
    ],
)
def test_malformed_and_climbing_references_are_invalid(uri: str) -> None:
    assert codes(uri) == ["REFERENCE_INVALID"]


@pytest.mark.parametrize("value", [None, 3, [], ["s3://b/x"], {}, {"uri": None}, {"uri": 3}])
def test_a_reference_is_a_uri_or_an_object_with_one(value: object) -> None:
    assert codes(value) == ["REFERENCE_INVALID"]


@pytest.mark.parametrize(
    "uri",
    [
        "https://user:password@example.com/x",
        "https://user@example.com/x",
        "s3://key:secret@bucket/x",
        "abfs://container:key@account.dfs.core.windows.net/x",
        "https://a.blob.core.windows.net/c/b?sv=2022&se=2030&sp=r&sig=abc%3D",
        "https://a.blob.core.windows.net/c/b?SE=2030&sp=r",
        "https://b.s3.amazonaws.com/k?X-Amz-Signature=abc",
        "https://b.s3.amazonaws.com/k?AWSAccessKeyId=a&Signature=b",
        "https://storage.googleapis.com/b/k?X-Goog-Signature=abc",
        "https://example.com/x?a=1;token=t",
        "https://example.com/x?access%5Ftoken=t",
        "https://example.com/x?password=",
        "https://example.com/x#access_token=t",
    ],
)
def test_credentials_in_a_reference_are_refused(uri: str) -> None:
    assert codes(uri) == ["REFERENCE_HAS_CREDENTIALS"]


def test_credentials_beside_the_uri_are_refused_by_name() -> None:
    faults = reference_faults({"uri": "s3://b/x", "SAS_token": "t"}, "/output_ref", OPEN)
    assert [(f.code, f.pointer) for f in faults] == [
        ("REFERENCE_HAS_CREDENTIALS", "/output_ref/SAS_token")
    ]


def test_only_listed_schemes_are_allowed() -> None:
    assert codes("ftp://host/x") == ["REFERENCE_NOT_ALLOWED"]
    assert codes("javascript://x/%0aalert(1)") == ["REFERENCE_INVALID"]
    deployed = ReferencePolicy(DEPLOYED_SCHEMES)
    assert codes("file:///etc/passwd", deployed) == ["REFERENCE_NOT_ALLOWED"]
    assert set(EMBEDDED_SCHEMES) - set(DEPLOYED_SCHEMES) == {"file"}


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [
        ("s3://docs-eu/x", True),
        ("s3://docs/x", False),
        ("https://a.example.com/x", True),
        ("https://A.EXAMPLE.com:443/x", True),
        ("https://example.com/x", False),
        ("https://example.com.evil.net/x", False),
        ("https://a.example.com@evil.net/x", False),
        ("https://local:9000/x", True),
        ("https://local:9001/x", False),
        ("file:///data/x", True),
    ],
)
def test_hosts_are_matched_whole_by_globs(uri: str, allowed: bool) -> None:
    policy = ReferencePolicy(hosts=("docs-*", "*.Example.com", "local:9000"))
    assert ("REFERENCE_NOT_ALLOWED" not in codes(uri, policy)) is allowed


@given(st.text(max_size=60), st.sampled_from(["", "s3://b/", "https://", "file:///", "s3:"]))
def test_any_text_gets_an_answer(text: str, start: str) -> None:
    for fault in reference_faults(start + text, "/x", OPEN):
        assert fault.reason


@given(st.lists(st.sampled_from(["..", ".", "a", "%2e", "%2E.", "%2f", "/", "%252e"]), max_size=6))
def test_no_allowed_path_climbs_however_often_it_is_decoded(parts: list[str]) -> None:
    uri = "s3://bucket/" + "".join(parts)
    if not codes(uri):
        path = uri.removeprefix("s3://bucket")
        for _ in range(4):
            assert ".." not in path.split("/")
            path = unquote(path)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://client.example/hook?token=t", None),
        ("http://client.example/hook", "must begin with https://"),
        ("https://client.example:x/", "is not a URL"),
        ("https://other.net/", "host other.net is not one of those in LUCIUS_WEBHOOK_HOSTS"),
        ("https://user@client.example/", "must name a host, and no user"),
        ("https://client.example/\n", "must be a URI without spaces"),
    ],
)
def test_webhooks_are_https_and_on_allowed_hosts(url: str, reason: str | None) -> None:
    found = webhook_fault(url, ("https",), ("*.example",))
    assert (found or "").startswith(reason or "")
    assert (found is None) is (reason is None)
