"""Settings are checked together, each with its source, and documented from their sections."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lucius.configs.files import PACKAGED, FileConfig
from lucius.core.plan import RetryPolicy, Sla
from lucius.core.references import DEPLOYED_SCHEMES, EMBEDDED_SCHEMES
from lucius.ports.ledger import Limits
from lucius.settings import Settings, SettingsError, load_settings, settings_page
from lucius.settings.reserved import RESERVED
from lucius.settings.table import ROWS

DESIGN = [
    "DATA_DIR",
    "BUS_BACKEND",
    "CONFIG_SOURCE",
    "PROTOCOLS",
    "WORKSPACE_URL",
    "ACK_TIMEOUT_SECONDS",
    "LEASE_SECONDS",
    "DISPATCH_BACKOFF_SECONDS",
    "ACK_BACKOFF_SECONDS",
    "EXECUTION_BACKOFF_SECONDS",
    "MAX_ATTEMPTS",
    "OUTBOX_RETRY_INTERVAL",
    "MAX_INFLIGHT",
    "MAX_INFLIGHT_PER_TENANT",
    "MAX_INFLIGHT_PER_LANE",
    "LANE_TOPOLOGY",
    "ROUTING_DELIMITER",
    "AUTH",
    "REQUIRE_REPLY_TOKEN",
    "SYSTEM",
    "JOB_SLA_SECONDS",
    "SLA_ACTION",
    "SERVICEBUS_CONNECTION",
    "SERVICEBUS_REPLY_PREFIX",
    "SERVICEBUS_REPLY_SUBSCRIPTION",
    "SERVICEBUS_LANES",
    "LEDGER_TABLE",
    "IDEMPOTENCY_TABLE",
    "TABLE_CONNECTION",
    "TEMPORAL_ADDRESS",
    "TEMPORAL_NAMESPACE",
    "TEMPORAL_TASK_QUEUE",
    "INVOKER_URL",
    "STEP_RESULT_TIMEOUT_SECONDS",
    "STORAGE_BACKEND",
    "JOBS_TABLE",
    "STEPS_TABLE",
    "JOB_INDEX_TABLE",
    "INFLIGHT_TABLE",
    "TEMPORAL_ENABLED",
    "TEMPORAL_WORKFLOW_EXECUTION_TIMEOUT",
]


def load(**variables: str) -> Settings:
    return load_settings({f"LUCIUS_{name}": text for name, text in variables.items()})


@pytest.mark.parametrize("name", DESIGN)
def test_every_name_of_the_design_is_a_setting_or_reserved(name: str) -> None:
    assert f"LUCIUS_{name}" in {row.env for row in ROWS.values()} | RESERVED.keys()


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


def test_options_of_the_command_line_go_before_the_environment() -> None:
    environ = {"LUCIUS_DATA_DIR": "/env", "LUCIUS_SYSTEM": "one"}
    settings = load_settings(environ, options={"LUCIUS_DATA_DIR": "/flag"})
    assert settings.data_dir == Path("/flag")
    assert settings.workspace_url == "file:///flag/workspace"
    assert settings.sources["LUCIUS_DATA_DIR"] == "command line"
    assert settings.sources["LUCIUS_SYSTEM"] == "environment"


def test_an_empty_variable_counts_as_not_set() -> None:
    settings = load(MAX_ATTEMPTS="", AUTH="")
    assert (settings.max_attempts, settings.auth) == (3, "none")
    assert settings.sources["LUCIUS_AUTH"] == "default"


def test_lists_are_separated_by_commas() -> None:
    settings = load(ACK_BACKOFF_SECONDS="1,2.5, 3", REFERENCE_HOSTS="*.example.com, docs")
    assert settings.ack_backoff == tuple(timedelta(seconds=each) for each in (1, 2.5, 3))
    assert settings.reference_hosts == ("*.example.com", "docs")


def test_the_address_of_a_unix_socket_does_not_keep_a_server_from_starting() -> None:
    assert load(URL="unix:.lucius/lucius.sock").url == "unix:.lucius/lucius.sock"


def test_no_limit_is_spelt_none() -> None:
    assert load(MAX_INFLIGHT_PER_TENANT="none").limits() == Limits()
    assert load(MAX_INFLIGHT_PER_TENANT="0").limits() == Limits(tenant=0)


# -- defaults that follow from others --------------------------------------------------------


def test_references_to_files_are_only_for_one_user_on_embedded_backends() -> None:
    assert load().reference_schemes == EMBEDDED_SCHEMES
    assert load(AUTH="keys").reference_schemes == DEPLOYED_SCHEMES
    azure = load(STORAGE_BACKEND="ledger", TABLE_CONNECTION="c")
    assert azure.reference_schemes == DEPLOYED_SCHEMES
    assert azure.ingress_policy().references.schemes == DEPLOYED_SCHEMES
    assert load(REFERENCE_SCHEMES="s3").reference_schemes == ("s3",)


def test_an_sla_may_fail_jobs() -> None:
    sla = load(SLA_ACTION="fail", JOB_SLA_SECONDS="10").ingress_policy().sla
    assert (sla.job, sla.fail_job, sla.fail_pause) == (timedelta(seconds=10), True, True)


def test_packaged_protocols_may_be_joined_by_others(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("protocols: [{request_type: X, protocol_id: x, steps: [OCR]}]")
    settings = load(PROTOCOLS=f"packaged,{tmp_path}")
    catalog = FileConfig(settings.protocol_paths(), policy=settings.retry_policy()).catalog()
    assert {"OCR", "X"} <= set(catalog.protocols)


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


def test_a_reserved_name_is_warned_about_and_does_nothing() -> None:
    settings = load(SERVICEBUS_REPLY_SUBSCRIPTION="mine", SERVICEBUS_LANES="8")
    assert settings.warnings == (
        "LUCIUS_SERVICEBUS_LANES is not used by this version: there are always 16 lanes",
        "LUCIUS_SERVICEBUS_REPLY_SUBSCRIPTION is not used by this version: replies come to"
        " lucius-reconciler or lucius-invoker",
    )


def test_new_jobs_run_on_the_engine_that_is_set() -> None:
    assert load().ingress_policy().engine == "outbox"
    assert load(TEMPORAL_ENABLED="true").ingress_policy().engine == "temporal"


# -- printing and documentation --------------------------------------------------------------


def test_every_setting_is_printed_as_it_could_be_set_again() -> None:
    settings = load(ACK_BACKOFF_SECONDS="0.5,90", REQUIRE_REPLY_TOKEN="1", MAX_INFLIGHT="none")
    printed = {line.name: line.value for line in settings.lines() if line.value != "none"}
    again = load_settings(printed)
    assert _values(again) == _values(settings)


def _values(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in ROWS}


def test_the_page_documents_every_setting_once() -> None:
    page = settings_page()
    listed, _, reserved = page.partition("## Reserved")
    rows = re.findall(r"^\| `(LUCIUS_\w+)` \|(.*)\|$", listed, re.MULTILINE)
    assert [name for name, _ in rows] == [row.env for row in ROWS.values()]
    assert all(len(cells.split("|")) == 4 for _, cells in rows)
    assert re.findall(r"^\| `(LUCIUS_\w+)`", reserved, re.MULTILINE) == list(RESERVED)
