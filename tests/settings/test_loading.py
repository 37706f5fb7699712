"""Settings are checked together, each with its source, and documented from their sections."""

from datetime import timedelta

import pytest

from lucius.adapters.configs.files import PACKAGED
from lucius.app.settings import Settings, SettingsError, load_settings
from lucius.core.plan import RetryPolicy, Sla
from lucius.core.references import DEPLOYED_SCHEMES, EMBEDDED_SCHEMES
from lucius.ports.ledger import Limits


def load(**variables: str) -> Settings:
    return load_settings({f"LUCIUS_{name}": text for name, text in variables.items()})


def test_the_defaults_are_those_of_the_core() -> None:
    settings = load()
    assert settings.retry_policy() == RetryPolicy()
    assert settings.ingress_policy().sla == Sla()
    assert settings.limits() == Limits(tenant=1000)
    assert settings.protocol_paths() == (PACKAGED,)
    assert settings.warnings == ()
    assert set(settings.sources.values()) == {"default"}


def test_values_come_from_the_environment_and_say_so() -> None:
    settings = load(ACK_TIMEOUT_SECONDS="0.25", MAX_INFLIGHT="7", REQUIRE_REPLY_TOKEN="Yes")
    assert settings.ack_timeout == timedelta(milliseconds=250)
    assert settings.max_inflight == 7
    assert settings.require_reply_token
    assert settings.sources["LUCIUS_MAX_INFLIGHT"] == "environment"
    assert settings.sources["LUCIUS_SYSTEM"] == "default"


# -- defaults that follow from others --------------------------------------------------------


def test_references_to_files_are_only_for_one_user_on_embedded_backends() -> None:
    assert load().reference_schemes == EMBEDDED_SCHEMES
    assert load(AUTH="keys").reference_schemes == DEPLOYED_SCHEMES
    azure = load(STORAGE_BACKEND="ledger", TABLE_CONNECTION="c")
    assert azure.reference_schemes == DEPLOYED_SCHEMES
    assert azure.ingress_policy().references.schemes == DEPLOYED_SCHEMES
    assert load(REFERENCE_SCHEMES="s3").reference_schemes == ("s3",)


# -- bad values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("MAX_ATTEMPTS", "0", "from 1 to 20"),
        ("MAX_ATTEMPTS", "three", "must be a whole number from 1 to 20, not 'three'"),
        ("MAX_INFLIGHT", "-1", "from 0"),
        ("ACK_TIMEOUT_SECONDS", "soon", "number of seconds"),
        ("ACK_TIMEOUT_SECONDS", "nan", "from 0.001"),
        ("LANE_TOPOLOGY", "shared,ring", "shared, isolated or filtered, or several"),
        ("LEASE_SECONDS", "0", "from 0.001"),
        ("LEASE_SECONDS", "inf", "seconds from 0.001 to 2592000, not 'inf'"),
        ("ACK_BACKOFF_SECONDS", "1,,2", "numbers of seconds"),
        ("ACK_BACKOFF_SECONDS", "-1", "numbers of seconds"),
        ("STORAGE_BACKEND", "oracle", "sqlite, memory, ledger or table"),
        ("REQUIRE_REPLY_TOKEN", "maybe", "true or false"),
        ("RATE_LIMIT_PER_SECOND", "nan", "from 0.01"),
        ("RETENTION", "30", "such as 30d"),
        ("INPUT_ROOTS", "a\n", "printable"),
        ("SYSTEM", "a/b", "letters"),
        ("PUBLIC_URL", "localhost", "URL"),
        ("SLA_ACTION", "panic", "escalate or fail"),
        ("AUTH", "basic", "none, keys or jwt"),
        ("CALLBACK_KEYS", "k1:" + "x" * 16 + ",k2:short", "id:secret"),
        ("CALLBACK_KEYS", "k.1:" + "x" * 16, "without a dot"),
        ("CALLBACK_KEYS", ",".join(["k1:" + "x" * 16] * 2), "each id once"),
    ],
)
def test_a_bad_value_is_named_with_a_reason(name: str, text: str, reason: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(**{name: text})
    ((variable, found),) = raised.value.faults
    assert variable == f"LUCIUS_{name}"
    assert reason in found
    assert variable in str(raised.value)


def test_a_bad_value_is_repeated_unless_it_is_a_secret() -> None:
    bad = {"MAX_ATTEMPTS": "three", "CALLBACK_KEYS": "hunter2", "PUBLIC_URL": "//u:hunter2@h"}
    with pytest.raises(SettingsError) as raised:
        load(**bad)
    faults = dict(raised.value.faults)
    assert faults["LUCIUS_MAX_ATTEMPTS"] == "must be a whole number from 1 to 20, not 'three'"
    assert "hunter2" not in str(raised.value)


def test_every_bad_value_is_listed_at_once() -> None:
    with pytest.raises(SettingsError) as raised:
        load(MAX_ATTEMPTS="x", LEASE_SECONDS="x", AUTH="x")
    names = {name for name, _ in raised.value.faults}
    assert names == {"LUCIUS_MAX_ATTEMPTS", "LUCIUS_LEASE_SECONDS", "LUCIUS_AUTH"}


@pytest.mark.parametrize(
    ("chosen", "missing"),
    [
        ({"STORAGE_BACKEND": "table"}, {"TABLE_CONNECTION"}),
        ({"BUS_BACKEND": "servicebus"}, {"SERVICEBUS_CONNECTION"}),
        ({"CONFIG_SOURCE": "appconfig"}, {"APPCONFIG_CONNECTION"}),
        ({"AUTH": "jwt"}, {"JWT_ISSUER", "JWT_AUDIENCE", "JWT_JWKS_URL"}),
    ],
)
def test_what_a_choice_needs_must_be_there(chosen: dict[str, str], missing: set[str]) -> None:
    with pytest.raises(SettingsError) as raised:
        load(**chosen)
    assert {name for name, _ in raised.value.faults} == {f"LUCIUS_{name}" for name in missing}


def test_an_unknown_variable_is_warned_about_by_name() -> None:
    settings = load(AKC_TIMEOUT_SECONDS="1", QUITE_ELSE="2")
    assert settings.warnings == (
        "unknown setting LUCIUS_AKC_TIMEOUT_SECONDS: did you mean LUCIUS_ACK_TIMEOUT_SECONDS?",
        "unknown setting LUCIUS_QUITE_ELSE",
    )


def test_a_bad_value_is_not_blamed_on_the_defaults_that_follow_from_it() -> None:
    with pytest.raises(SettingsError) as raised:
        load(AUTH="basic", STORAGE_BACKEND="oracle")
    assert [name for name, _ in raised.value.faults] == ["LUCIUS_STORAGE_BACKEND", "LUCIUS_AUTH"]


# -- printing and documentation --------------------------------------------------------------
