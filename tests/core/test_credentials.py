"""Credentials in results: taken out and marked, with everything else left as it is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.core.addresses import REMOVED, SECRET_NAMES, without_credentials
from lucius.core.references import HAS_CREDENTIALS, ReferencePolicy, reference_faults
from lucius.core.wire import parse_reply, plain_ref

OPEN = ReferencePolicy()
AZURE = "https://a.blob.core.windows.net/c/b"
CASES = [
    ("https://user:password@example.com/x", "https://example.com/x"),
    ("https://user@example.com/x", "https://example.com/x"),
    ("s3://key:secret@bucket/x", "s3://bucket/x"),
    ("mem://user:pw@/x", "mem:///x"),
    ("//user:pw@host/x", "//host/x"),
    (
        "abfs://container:key@account.dfs.core.windows.net/x",
        "abfs://container@account.dfs.core.windows.net/x",
    ),
    (f"{AZURE}?sv=2022&se=2030&sp=r&sig=abc%3D", AZURE),
    (f"{AZURE}?SE=2030&sp=r&snapshot=7", f"{AZURE}?snapshot=7"),
    (
        "https://b.s3.amazonaws.com/k?versionId=3&X-Amz-Signature=a",
        "https://b.s3.amazonaws.com/k?versionId=3",
    ),
    ("https://b.s3.amazonaws.com/k?AWSAccessKeyId=a&Signature=b", "https://b.s3.amazonaws.com/k"),
    ("https://example.com/x?a=1;token=t", "https://example.com/x?a=1"),
    ("https://example.com/x?access%5Ftoken=t", "https://example.com/x"),
    ("https://example.com/x?a=1#access_token=t", "https://example.com/x?a=1"),
    ("out.json?sig=abc", "out.json"),
    ("https://user:pw@[::1/x", None),
]
CLEAN: list[Any] = [
    None,
    "s3://bucket/a@b.txt",
    "abfs://container@account.dfs.core.windows.net/x",
    "https://example.com/x?version=3#page=2",
    "write to user@example.com",
    {"uri": "s3://b/x", "size": 3, "etag": "a?b#c@d"},
    ["s3://b/x", {"uri": "s3://b/y"}],
    "é" * 400,
    7,
]


@pytest.mark.parametrize(("given_uri", "kept"), CASES)
def test_credentials_are_taken_out_and_the_mark_left(given_uri: str, kept: str | None) -> None:
    marked = {"uri": kept, REMOVED: True}
    assert without_credentials(given_uri) == marked
    assert without_credentials({"uri": given_uri}) == marked
    assert without_credentials([given_uri, "s3://b/x"]) == [marked, "s3://b/x"]
    assert not plain_ref(given_uri)
    assert not plain_ref({"uri": given_uri})


@pytest.mark.parametrize("value", CLEAN, ids=str)
def test_what_carries_none_is_left_as_it_is(value: Any) -> None:
    assert without_credentials(value) == value


@pytest.mark.parametrize("name", sorted(SECRET_NAMES))
def test_fields_beside_the_uri_are_taken_out_by_name(name: str) -> None:
    reference = {"uri": "s3://b/x", name.upper(): "t"}
    assert not plain_ref(reference)
    assert without_credentials(reference) == {"uri": "s3://b/x", REMOVED: True}
    nested = {"pages": [{"uri": "s3://b/x", name: {"deep": 1}}]}
    assert without_credentials(nested) == {"pages": [{"uri": "s3://b/x", REMOVED: True}]}


PARTS = (
    *("https:", "abfs:", "s3:", "//", "/", "user", ":", "pw", "@", "%40", "host", "[", "]"),
    *("?", "&", ";", "#", "=", "%3F", "sig=a", "%73ig=x", "token=", "Token", "se=1", "sp=r", "a=1"),
    *("\t", "\\"),
)
part = st.sampled_from(PARTS)


@given(st.lists(part, max_size=12).map("".join))
def test_nothing_that_is_kept_would_be_refused_for_its_credentials(text: str) -> None:
    kept = without_credentials(text)
    uri = kept["uri"] if isinstance(kept, dict) else kept
    if uri is not None:
        codes = [fault.code for fault in reference_faults(uri, "/x", OPEN)]
        assert HAS_CREDENTIALS not in codes


@given(st.lists(part, max_size=12).map("".join))
def test_the_short_way_lets_no_credentials_pass(text: str) -> None:
    bound = {"jobId": "j", "stepId": "s", "attempt_no": 1, "lease_id": "l"}
    body = {**bound, "type": "RESULT", "status": "SUCCEEDED", "output_ref": text}
    _, received = parse_reply(body)
    assert received.result_ref == without_credentials(text)  # type: ignore[union-attr]
