"""Secrets of the settings: from a variable or a file, and never shown."""

import re
from pathlib import Path

import pytest

from lucius.app.secrets import callback_keys, webhook_secret
from lucius.app.settings import Settings, SettingsError, load_settings
from lucius.app.settings.kinds import SettingRow
from lucius.app.settings.loading import LARGEST_FILE, ROWS


def load(**variables: str) -> Settings:
    return load_settings({f"LUCIUS_{name}": text for name, text in variables.items()})


SECRET = {
    row.env.removeprefix("LUCIUS_"): "k1:geheim" + "x" * 16 for row in ROWS.values() if row.secret
}


def test_connections_and_keys_are_secrets() -> None:
    named = re.compile(r"CONNECTION$|SECRET$|_KEY$|CALLBACK_KEYS$|NATS_(PASSWORD|TOKEN)$")
    assert set(SECRET) == {
        row.env.removeprefix("LUCIUS_") for row in ROWS.values() if named.search(row.env)
    }


def test_secrets_are_never_shown() -> None:
    settings = load(**SECRET, NATS_URL="nats://user:geheim@host:4222")
    lines = {line.name: line for line in settings.lines()}
    assert "geheim" not in f"{settings} {lines}"
    assert lines["LUCIUS_SERVICEBUS_CONNECTION"][1:3] == ("********", "environment")
    assert lines["LUCIUS_NATS_URL"].value == "nats://***@host:4222"
    assert {line.name: line.value for line in load().lines()}["LUCIUS_API_KEY"] == "none"


ADDRESS = "https://geheim:geheim@host/v1?key=geheim&Subscription-Key=geheim&x=geheim"


@pytest.mark.parametrize(
    "row", [row for row in ROWS.values() if not row.secret], ids=lambda row: row.env
)
def test_no_address_is_shown_with_its_credentials(row: SettingRow) -> None:
    """Whether the setting takes it or says why not."""
    try:
        shown = str(load_settings({row.env: ADDRESS}))
    except SettingsError as refused:
        shown = str(refused)
    assert "geheim" not in shown
    assert row.env in shown


def test_a_bad_secret_is_not_repeated_in_its_error() -> None:
    with pytest.raises(SettingsError) as raised:
        load(API_KEY="geheim\n")
    assert "geheim" not in str(raised.value)


def test_a_secret_has_no_text_but_for_who_asks_for_it() -> None:
    settings = load(**SECRET)
    assert "geheim" not in f"{settings.webhook_secret!r} {settings.callback_keys} {settings!s}"
    assert "geheim" in webhook_secret(settings)


# -- in a file -------------------------------------------------------------------------------


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    keys, webhook = tmp_path / "keys", tmp_path / "webhook"
    keys.write_text("k7:" + "x" * 16 + "\n")
    webhook.write_text("whsec")
    settings = load(CALLBACK_KEYS_FILE=str(keys), WEBHOOK_SECRET_FILE=str(webhook))
    assert callback_keys(settings) == {"k7": b"x" * 16}
    assert webhook_secret(settings) == "whsec"
    assert settings.sources["LUCIUS_WEBHOOK_SECRET"] == f"file {webhook}"
    assert settings.warnings == ()


def test_a_connection_in_a_file_is_there_when_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "bus").write_text("Endpoint=sb://x")
    named = {"SERVICEBUS_CONNECTION_FILE": str(tmp_path / "bus")}
    settings = load(BUS_BACKEND="servicebus", **named)
    assert settings.servicebus_connection.get_secret_value() == "Endpoint=sb://x"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"x" * (LARGEST_FILE + 1), "larger than"),
    ],
)
def test_a_file_without_a_secret_is_refused(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError) as raised:
        load(WEBHOOK_SECRET_FILE=str(path))
    ((name, found),) = raised.value.faults
    assert name == "LUCIUS_WEBHOOK_SECRET_FILE"
    assert str(path) in found
    assert reason in found


def test_what_a_file_holds_is_checked_and_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("geheim")
    with pytest.raises(SettingsError) as raised:
        load(CALLBACK_KEYS_FILE=str(path))
    ((name, reason),) = raised.value.faults
    assert name == "LUCIUS_CALLBACK_KEYS"
    assert "id:secret" in reason
    assert "geheim" not in reason


def test_a_secret_is_not_given_twice(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="leave one of them out"):
        load(WEBHOOK_SECRET="a", WEBHOOK_SECRET_FILE=str(tmp_path / "b"))


def test_what_is_no_secret_has_no_file() -> None:
    settings = load(SYSTEM_FILE="x")
    assert [warning.split(":")[0] for warning in settings.warnings] == [
        "unknown setting LUCIUS_SYSTEM_FILE",
    ]
