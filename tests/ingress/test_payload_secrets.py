"""Credentials in payloads are refused by their pointers, and what only resembles them is not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.app.settings import load_settings
from lucius.app.settings.loading import SettingsError
from lucius.core.errors import RequestError
from lucius.engine.admission.faults import Faults
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.admission.secrets import PayloadSecrets, credential_in, judged
from tests.ingress.requests import NOW, PACKAGED, STEPS, request
from tests.ingress.test_redrive import ended

SECRET_NAMES = (
    *(
        "password",
        "Password",
        "PASSWORD",
        "db_password",
        "dbPassword",
        "db-password",
        "db.password",
    ),
    *("userpassword", "password1", "password_2", "new_password", "password_confirmation"),
    *("passwd", "pwd", "passphrase", "passcode", "passwords", "password_hash"),
    *("secret", "client_secret", "clientSecret", "CLIENT-SECRET", "clientsecret", "secret_value"),
    *("secrets", "token_secret", "webhook secret"),
    *(
        "token",
        "access_token",
        "accessToken",
        "auth-token",
        "authToken",
        "X-Auth-Token",
        "sas_token",
    ),
    *("refresh_token", "id_token", "bearerToken", "session_token", "csrf_token", "accesstoken"),
    *("access_tokens", "tokenValue", "github_token", "token2"),
    *(
        "api_key",
        "apiKey",
        "APIKey",
        "api-key",
        "apikey",
        "x-api-key",
        "api_keys",
        "openai_api_key",
    ),
    *("access_key", "secret_key", "secretAccessKey", "private_key", "privateKeyPem", "account_key"),
    *("signing_key", "encryption_key", "ssh_key", "sharedAccessKey", "Ocp-Apim-Subscription-Key"),
    *("credential", "credentials", "aws_credentials", "authorization", "Authorization", "cookie"),
    *("connection_string", "connectionString", "jwt", "proxy_authorization"),
)
HARMLESS_NAMES = (
    *("max_tokens", "maxTokens", "token_count", "tokens", "tokens_per_minute", "num_tokens"),
    *(
        "tokenizer",
        "tokenize",
        "tokenization",
        "token_limit",
        "stop_token",
        "stopToken",
        "pad_token",
    ),
    *("eos_token", "mask_token", "page_token", "next_page_token", "cost_per_token", "max_token"),
    *("prompt_tokens", "completion_tokens", "stop_tokens", "token_ids", "token_type", "token_url"),
    *("secretary", "secretariat", "secret_name", "secretRef", "secret_id", "secret_arn"),
    *(
        "password_policy_url",
        "password_field",
        "password_min_length",
        "passwordless",
    ),
    *("password_ref", "passport", "pass", "passes", "compass", "bypass", "passage"),
    *(
        "key",
        "keys",
        "sort_key",
        "primary_key",
        "storage_key",
        "keyword",
        "keywords",
        "key_phrases",
    ),
    *("foreign_key", "keyboard", "monkey", "idempotency_key", "partition_key", "object_key"),
    *(
        "api_key_name",
        "access_key_id",
        "private_key_path",
        "public_key",
        "api",
        "access",
        "apiVersion",
    ),
    *("credential_provider", "authorized", "author", "authors", "authority", "authorization_url"),
    *("signature", "signatures", "signature_required", "signed", "sig", "cookies", "cookie_policy"),
    *("connection", "string", "language", "chunk_size", "prompt_set", "text", "value", "hash", "1"),
)


def found(value: Any, *allowed: str) -> dict[str, str]:
    faults = Faults()
    PayloadSecrets(allowed).check(value, "/payload", faults)
    if not faults:
        return {}
    with pytest.raises(RequestError) as refused:
        faults.raise_all()
    assert refused.value.code == "PAYLOAD_HAS_CREDENTIALS"
    return dict(refused.value.faults)


# -- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_field_with_the_name_of_a_secret_is_refused(name: str) -> None:
    assert judged(name) in ("secret", "token")
    assert found({"steps": {"ocr": {name: "hunter2"}}}) == {
        f"/payload/steps/ocr/{name}": "looks like a credential by its name"
    }


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_a_field_that_only_resembles_one_is_taken(name: str) -> None:
    assert judged(name) in ("", "form")
    assert found({name: "hunter2", "token": ""}) == {}


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        ({"password": 123456}, ["/payload/password"]),
        ({"passwords": ["a", "", "b"]}, ["/payload/passwords/0", "/payload/passwords/2"]),
        ({"pwd": {"value": "x", "text": ["y"]}}, ["/payload/pwd/value", "/payload/pwd/text/0"]),
        ({"a/b": [{"c~d": {"token": "x"}}]}, ["/payload/a~1b/0/c~0d/token"]),
        ({"password": "x", "n": {"api_key": "y"}}, ["/payload/password", "/payload/n/api_key"]),
        ({"password": {"min_length": 8, "hint_url": "/help"}}, []),
        ({"secret": {"name": "db", "vault": "main"}}, []),
        ({"password": True, "secret": None, "api_key": "", "credentials": {}}, []),
        ({"token": 512, "auth_token": 3.5}, []),
    ],
)  # fmt: skip
def test_it_is_the_value_that_is_refused(value: Any, pointers: list[str]) -> None:
    assert list(found(value)) == pointers


# -- texts -----------------------------------------------------------------------------------

SIG = "sig=Yh0kx8s7h6X5cVb4Nm3QwErTyUiOpAsDfGhJkLzXcVb%3D"
SECRET_TEXTS = (
    f"https://acct.blob.core.windows.net/c/b?sv=2024-11-04&se=2030-01-01&{SIG}",
    f"sv=2024-11-04&se=2030&{SIG}",
    f"see <https://h/x?{SIG}&se=1> and more",
    "https%3A%2F%2Fh%2Fx%3Fsv%3D1%26sig%3DYh0kx8s7h6X5cVb4Nm3QwErTy",
    "https://user:hunter2@host/path",
    "https://ghp_abc@github.com/a/b",
    "git clone HTTPS://me@host/x please",
    "postgresql://app:hunter2@db:5432/x",
    "https://bucket.s3.amazonaws.com/k?X-Amz-Credential=AKIA&X-Amz-Signature=abc",
    "https://host/cb#access_token=abc",
    "Authorization: Bearer abcdefghij0123456789",
    "bearer  eyJhbGciOiJIUzI1NiJ9abcdef",
    "Authorization: Basic dXNlcjpodW50ZXIy",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "-----BEGIN PRIVATE KEY-----\nMIIE",
    "x\n-----BEGIN RSA PRIVATE KEY-----",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc==;EndpointSuffix=x",
    "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=abc",
    "Server=db;User Id=app;Password=hunter2",
    "lk_0123456789abcdef_secret",
)
HARMLESS_TEXTS = (
    "What is the password policy, and who holds the token?",
    "bearer bonds and bearer instruments of the issuer",
    "The bearer responsibilities-and-obligations-of-holders",
    "Who is the bearer of account 12345678901234567890?",
    "https://example.com/a?page=2&sort=key#top",
    "mail me@example.com, see https://example.com/@me",
    "abfss://container@account.dfs.core.windows.net/x",
    "ssh://git@host/x",
    "s3://bucket/tenant/1.pdf",
    "a signature block: sig= and the date",
    "sig=short&se=1",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "eyJ is how encoded objects begin",
    "the basic authorization of the board",
    "x = password; y = 1",
    "12:30 @ the harbour://",
    "Grüße, 漢字, шифр",
)  # fmt: skip


@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_a_text_that_holds_a_credential_is_refused_in_any_field(text: str) -> None:
    assert credential_in(text) is not None
    (pointer, reason), *others = found({"a": ["x", text]}).items()
    assert (pointer, others) == ("/payload/a/1", [])
    assert not {"hunter2", "abc", "Yh0k"} & set(reason.split())


@pytest.mark.parametrize("text", HARMLESS_TEXTS)
def test_a_text_without_one_is_taken(text: str) -> None:
    assert found({"note": text, "list": [text]}) == {}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", *SECRET_TEXTS]),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["a", "token", "max_tokens", "Secret", "value"]), inner
            )
        ),
        max_leaves=12,
    )
)
def test_the_quick_look_misses_nothing_that_the_close_one_finds(value: Any) -> None:
    closely = PayloadSecrets()._found(value, (), "")
    assert len(found({"p": value})) == len(closely)


# -- where it holds --------------------------------------------------------------------------


def refused(given: dict[str, Any], **policy: Any) -> RequestError:
    with pytest.raises(RequestError) as error:
        Ingress(PACKAGED, IngressPolicy(**policy)).admit(given, job_id="j", now=NOW)
    return error.value


def test_a_command_is_refused_with_all_of_them_and_none_of_their_values() -> None:
    payload = {"steps": {"ocr": {"password": "hunter2"}, "sis": {"prompt_set": ["lk_" + "x" * 20]}}}
    error = refused(request(payload=payload, api_key="hunter2"))
    assert (error.status, error.code) == (422, "PAYLOAD_HAS_CREDENTIALS")
    assert [at for at, _ in error.faults] == [
        "/payload/steps/ocr/password",
        "/payload/steps/sis/prompt_set/0",
        "/api_key",
    ]
    assert "LUCIUS_ALLOW_PAYLOAD_SECRETS" in error.detail
    assert "hunter2" not in json.dumps([error.detail, error.faults])


def test_a_corrected_payload_is_held_to_the_same() -> None:
    ingress = Ingress(PACKAGED)
    with pytest.raises(RequestError) as error:
        ingress.admit_redrive(
            ended(), job_id="job_2", now=NOW, payload={"steps": {"sis": {"token": "x"}}}
        )
    assert error.value.code == "PAYLOAD_HAS_CREDENTIALS"
    assert error.value.faults[0][0] == "/payload/steps/sis/token"


# -- the setting -----------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", ["db_password", "dbPassword,other", "DB-PASSWORD", "*"])
def test_the_setting_names_the_fields_that_may(allowed: str) -> None:
    policy = load_settings({"LUCIUS_ALLOW_PAYLOAD_SECRETS": allowed}).ingress_policy()
    payload = {"steps": {**STEPS, "ocr": {"db_password": {"value": "hunter2"}}}}
    admission = Ingress(PACKAGED, policy).admit(request(payload=payload), job_id="j", now=NOW)
    assert admission.plan.payload == payload


def test_it_opens_no_other_field() -> None:
    assert list(found({"db_password": "x", "password": "y"}, "db_password")) == [
        "/payload/password"
    ]
    assert found({"source": SECRET_TEXTS[0], "token": "x"}, "source", "token") == {}


@pytest.mark.parametrize("value", ["true", "false", "db_password,TRUE", "none"])
def test_a_flag_is_no_name_of_a_field(value: str) -> None:
    with pytest.raises(
        SettingsError, match="LUCIUS_ALLOW_PAYLOAD_SECRETS: must be names of fields"
    ):
        load_settings({"LUCIUS_ALLOW_PAYLOAD_SECRETS": value})
