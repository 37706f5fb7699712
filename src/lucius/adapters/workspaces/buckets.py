"""Buckets of S3 and of Google Cloud Storage, there and where other servers speak the same: `s3://` and `gs://`.

Credentials are those of the environment or of the platform's identity, which the library looks for.
"""

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult

from obstore.store import GCSStore, S3Store

from lucius.adapters.workspaces.objects import CLIENT, RETRIES, Stores

if TYPE_CHECKING:
    from obstore.store import GCSConfig, S3Config

_S3_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_GCS_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_S3_REFUSED: Final = (
    "the store refuses the caller. Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of this"
    " process, which needs GetObject, PutObject, DeleteObject and ListBucket; LUCIUS_S3_ENDPOINT and"
    " AWS_REGION say where it asks"
)
_GCS_REFUSED: Final = (
    "the store refuses the caller. Check GOOGLE_APPLICATION_CREDENTIALS, or the identity of this process,"
    " which needs the role Storage Object User; LUCIUS_GCS_ENDPOINT says where it asks"
)


def s3(endpoint: str) -> Stores:
    """Empty: Amazon's. The region is that of AWS_REGION, or else us-east-1."""
    config: S3Config = {}
    if endpoint:
        config["aws_endpoint_url_s3"] = endpoint  # goes before all that the environment says

    def store_of(bucket: str) -> S3Store:
        return S3Store(
            bucket,
            config=config,
            client_options={**CLIENT, "allow_http": endpoint.startswith("http://")},
            retry_config=RETRIES,
        )

    return Stores(
        schemes=("s3",),
        setting="LUCIUS_S3_ENDPOINT",
        object="an object of S3",
        container="bucket",
        containers=_S3_BUCKET,
        split=_split,
        open=store_of,
        refused=_S3_REFUSED,
    )


def gcs(endpoint: str) -> Stores:
    config: GCSConfig = {"base_url": endpoint} if endpoint else {}

    def store_of(bucket: str) -> GCSStore:
        return GCSStore(
            bucket,
            config=config,
            client_options={**CLIENT, "allow_http": endpoint.startswith("http://")},
            retry_config=RETRIES,
        )

    return Stores(
        schemes=("gs",),
        setting="LUCIUS_GCS_ENDPOINT",
        object="an object of Google Cloud Storage",
        container="bucket",
        containers=_GCS_BUCKET,
        split=_split,
        open=store_of,
        refused=_GCS_REFUSED,
    )


def _split(parts: SplitResult) -> tuple[str, str]:
    return parts.netloc, parts.path.removeprefix("/")
