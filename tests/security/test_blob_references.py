"""No reference of a request leads to workspaces in an object store, however it is spelt."""

import pytest

from lucius.app.adapters import ingress_policy
from lucius.app.settings import load_settings
from lucius.core.references import PROTECTED, reference_faults

HOST = "name.blob.core.windows.net"
HOME = "lucius/tenant_b/job_1/ocr/output.txt"


def codes(uri: str, home: str) -> list[str]:
    settings = load_settings({"LUCIUS_WORKSPACE_URL": home})
    policy = ingress_policy(settings).references
    return [fault.code for fault in reference_faults(uri, "/input_ref", policy)]


@pytest.mark.parametrize(
    "home", ["az://work/jobs", f"abfss://work@{HOST}/jobs", f"https://{HOST}/work/jobs"]
)
@pytest.mark.parametrize(
    "uri",
    [
        f"az://work/jobs/{HOME}",
        f"az://WORK/jobs/{HOME}",
        "az://work/jobs/lucius",
        f"abfs://work/jobs/{HOME}",
        f"abfs://work@{HOST}/jobs/{HOME}",
        f"abfs://W%6Frk@{HOST}/jobs/{HOME}",
        f"abfss://work@name.dfs.core.windows.net/jobs/{HOME}",
        f"https://{HOST}/work/jobs/{HOME}",
        f"https://{HOST}:443/work/jobs/{HOME}",
        f"https://{HOST}/w%6Frk/jobs/{HOME}",
        f"az://work/%6Aobs/{HOME}",
        f"az://work/%256Aobs/{HOME}",
    ],
)
def test_a_reference_into_the_workspaces_is_refused(uri: str, home: str) -> None:
    assert codes(uri, home) == [PROTECTED]


@pytest.mark.parametrize(
    "uri",
    [
        "az://work/jobs/lucius2/x",
        "az://work/other/lucius/x",
        "az://work2/jobs/lucius/x",
        f"https://{HOST}/other/jobs/lucius/x",
        "https://work/jobs/lucius/x",
        "s3://work/jobs/lucius/x",
    ],
)
def test_what_is_beside_the_workspaces_is_open(uri: str) -> None:
    assert codes(uri, "az://work/jobs") == []


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_buckets_are_guarded_too(scheme: str) -> None:
    home = f"{scheme}://bucket/jobs"
    for uri in (
        f"{scheme}://bucket/jobs/{HOME}",
        f"{scheme}://BUCKET/jobs/{HOME}",
        f"{scheme}://bucket:443/jobs/{HOME}",
        f"{scheme}://bucket/%6Aobs/{HOME}",
        f"{scheme}://bucket/%256Aobs/{HOME}",
    ):
        assert codes(uri, home) == [PROTECTED]
    for uri in (f"{scheme}://bucket/in/doc.pdf", f"{scheme}://bucket2/jobs/{HOME}"):
        assert codes(uri, home) == []
