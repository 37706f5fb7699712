"""Callback tokens open exactly one attempt, whatever is changed about it."""

from collections.abc import Callable

import pytest

from lucius.http import tokens as module
from lucius.http.tokens import CallbackTokens

OLD, NEW = b"old-key-old-key-old-key", b"new-key-new-key-new-key"
ATTEMPT = ("job_1", "ocr", 1, "lease_1")


def same(tokens: CallbackTokens) -> CallbackTokens:
    return tokens


def another(tokens: CallbackTokens) -> CallbackTokens:
    """A process that has the keys and did not mint the token: it can only check the MAC."""
    return CallbackTokens({"k": OLD})


by_whom = pytest.mark.parametrize("verifier", [same, another])
Verifier = Callable[[CallbackTokens], CallbackTokens]


@pytest.mark.parametrize("size", [17, 63, 64, 65, 128, 1000])
def test_every_byte_of_a_secret_counts(size: int) -> None:
    secret = bytes(n % 251 for n in range(size))
    token = CallbackTokens({"k": secret}).mint("tenant_a", *ATTEMPT)
    assert CallbackTokens({"k": secret}).verify(token, *ATTEMPT) == "tenant_a"
    for at in range(size):
        other = secret[:at] + bytes([secret[at] ^ 1]) + secret[at + 1 :]
        assert CallbackTokens({"k": other}).verify(token, *ATTEMPT) is None
    assert CallbackTokens({"k": secret + b"x"}).verify(token, *ATTEMPT) is None


def test_a_seal_needs_every_byte_too() -> None:
    seal = CallbackTokens({"k": b"s" * 64 + b"a"}).seal("cursor")
    assert not CallbackTokens({"k": b"s" * 64 + b"b"}).sealed("cursor", seal)


@by_whom
def test_a_token_names_its_tenant_for_its_own_attempt(verifier: Verifier) -> None:
    tokens = CallbackTokens({"k": OLD})
    token = tokens.mint("tenant_a", *ATTEMPT)
    assert verifier(tokens).verify(token, *ATTEMPT) == "tenant_a"


def test_what_was_minted_long_ago_is_known_by_its_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    tokens = CallbackTokens({"k": OLD})
    minted = [tokens.mint("tenant_a", "job_1", "ocr", number, "lease_1") for number in range(7)]
    for number, token in enumerate(minted):
        assert tokens.verify(token, "job_1", "ocr", number, "lease_1") == "tenant_a"
        assert tokens.verify(token, "job_1", "ocr", number + 1, "lease_1") is None
    assert len(tokens._minted) + len(tokens._minted_before) <= 4


@pytest.mark.parametrize(
    "other",
    [
        ("job_2", "ocr", 1, "lease_1"),
        ("job_1", "sis", 1, "lease_1"),
        ("job_1", "ocr", 2, "lease_1"),
        ("job_1", "ocr", 1, "lease_2"),
        ("job_1ocr", "", 1, "lease_1"),
    ],
)
@by_whom
def test_a_token_opens_no_other_attempt(
    verifier: Verifier, other: tuple[str, str, int, str]
) -> None:
    tokens = CallbackTokens({"k": OLD})
    token = tokens.mint("tenant_a", *ATTEMPT)
    assert verifier(tokens).verify(token, *other) is None


def test_a_token_cannot_be_moved_to_another_tenant() -> None:
    tokens = CallbackTokens({"k": OLD})
    key_id, _, mac = tokens.mint("tenant_a", *ATTEMPT).split(".")
    tenant = tokens.mint("tenant_b", *ATTEMPT).split(".")[1]
    assert tokens.verify(f"{key_id}.{tenant}.{mac}", *ATTEMPT) is None


def test_after_a_rotation_old_tokens_hold_until_their_key_goes() -> None:
    minted = CallbackTokens({"old": OLD}).mint("tenant_a", *ATTEMPT)
    rotated = CallbackTokens({"old": OLD, "new": NEW})
    assert rotated.verify(minted, *ATTEMPT) == "tenant_a"
    assert rotated.mint("tenant_a", *ATTEMPT).startswith("new.")
    assert CallbackTokens({"new": NEW}).verify(minted, *ATTEMPT) is None


@pytest.mark.parametrize("token", ["", "k", "k.a", "k.a.b", "k..", "k.é.b", "x.dA.dA", "k." * 900])
def test_what_is_no_token_opens_nothing(token: str) -> None:
    assert CallbackTokens({"k": OLD}).verify(token, *ATTEMPT) is None


def test_weak_or_ambiguous_keys_are_refused() -> None:
    for keys in ({}, {"k": b"short"}, {"a.b": OLD}, {"": OLD}):
        with pytest.raises(ValueError):
            CallbackTokens(keys)


def test_a_seal_holds_for_its_text_only() -> None:
    tokens = CallbackTokens({"k": OLD})
    assert tokens.sealed("text", tokens.seal("text"))
    assert not tokens.sealed("other", tokens.seal("text"))


def test_every_key_that_may_have_signed_a_token_has_its_own() -> None:
    attempt = ("tenant_a", "job_1", "ocr", 1, "lease_1")
    before, after = {"k1": b"a" * 32}, {"k1": b"a" * 32, "k2": b"b" * 32}
    minted = CallbackTokens(before).mint(*attempt)
    assert minted in CallbackTokens(after).every(*attempt), "it was signed before the rotation"
    assert CallbackTokens(after).mint(*attempt) in CallbackTokens(after).every(*attempt)
    assert minted not in CallbackTokens(after).every("tenant_b", *attempt[1:])
