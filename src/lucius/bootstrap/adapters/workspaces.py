"""Where outputs lie, by the scheme of their references, and whose they are."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from lucius.admission.ingress import IngressPolicy
from lucius.bootstrap.adapters.ledgers import identity
from lucius.bootstrap.adapters.unsupported import UnsupportedError, optional
from lucius.bootstrap.secrets import made_once
from lucius.core.addresses import is_guarded
from lucius.core.errors import WorkspaceRefusedError
from lucius.engines.outbox.ownership import EMBEDDED
from lucius.ports.workspace import Workspace
from lucius.settings import Settings
from lucius.settings.kinds import show
from lucius.upkeep.job_workspaces import JobWorkspaces
from lucius.workspaces.azure_account import Account, account_of
from lucius.workspaces.by_scheme import WorkspaceByScheme
from lucius.workspaces.local import LocalWorkspace, path_of
from lucius.workspaces.memory import MemoryWorkspace
from lucius.workspaces.places import Places

INSTALLATION_FILE: Final = "installation"
BLOB_SCHEMES: Final = ("az", "abfs", "abfss", "https")
S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
GCS_ENDPOINTS: Final = ("STORAGE_EMULATOR_HOST",)
"""The standard variables that name other servers than Amazon's and Google's, where ours are empty."""
MOST_OF_A_DOCUMENT: Final = 100 * 1024 * 1024
"""Bytes of a document that services read at an https address, below one in LUCIUS_INPUT_ROOTS."""
SERVED_SCHEMES: Final = ("file", "mem", "s3", "gs", *BLOB_SCHEMES)


def open_workspace(settings: Settings, *, restores: bool = True) -> Workspace:
    """The scheme of a reference chooses. `file` reaches the workspaces and the roots in the settings.

    On a running event loop. `restores`: write again what a loss of power took; another process may have.
    """
    local = LocalWorkspace(
        workspace_root(settings),
        readable=[Path(root).expanduser() for root in settings.input_roots if not is_url(root)],
        writable=[Path(root).expanduser() for root in settings.output_roots if not is_url(root)],
        protected=[settings.data_dir],
        small_as_files=settings.workspace_files == "all",
    )
    if restores:
        local.recover()
    local.settle_left()
    memory = MemoryWorkspace(jobs=settings.workspace_url)
    return WorkspaceByScheme({"file": local, "mem": memory, **objects(settings)})


def is_url(root: str) -> bool:
    return "://" in root


def scheme_of(place: str) -> str:
    return place.partition(":")[0].lower()


def objects(settings: Settings) -> dict[str, Workspace]:
    """What is not on this machine, by scheme: an account of Azure, buckets, and https addresses to read."""
    connection = settings.blob_connection.get_secret_value()
    account = account_of(connection) if connection else None
    hosts = account.hosts if account is not None else frozenset()
    readable: list[str] = []
    documents: list[str] = []
    for root in filter(is_url, settings.input_roots):
        plain = scheme_of(root) == "https" and urlsplit(root).netloc.lower() not in hosts
        (documents if plain else readable).append(root)
    writable = list(filter(is_url, settings.output_roots))
    try:
        stored = _stored(settings, account, readable, writable)
        if "https" in stored:
            stored |= dict.fromkeys((f"https://{host}" for host in hosts), stored["https"])
        return {**stored, **_documents(documents)}
    except WorkspaceRefusedError as error:
        raise UnsupportedError(
            f"LUCIUS_WORKSPACE_URL, LUCIUS_INPUT_ROOTS or LUCIUS_OUTPUT_ROOTS: {error}"
        ) from error


def _documents(roots: Sequence[str]) -> dict[str, Workspace]:
    if not roots:
        return {}
    from lucius.workspaces.https import HttpsDocuments  # few need its client

    return {"https": HttpsDocuments(roots, limit=MOST_OF_A_DOCUMENT)}


def _stored(
    settings: Settings, account: Account | None, readable: Sequence[str], writable: Sequence[str]
) -> dict[str, Workspace]:
    """What is in object stores; of buckets those kinds in which a setting names one."""
    home = settings.workspace_url
    stores = list(_stores(settings, account, {*map(scheme_of, (home, *readable, *writable))}))
    served = {scheme for each in stores for scheme in each.schemes}
    for root in (*readable, *writable):
        if scheme_of(root) not in served:
            raise UnsupportedError(
                f"LUCIUS_INPUT_ROOTS or LUCIUS_OUTPUT_ROOTS name {root}: {_helps(root)}"
            )
    if not stores:
        return {}
    adapter = optional("lucius.workspaces.objects", "an object store", "s3")
    opened = adapter.ObjectWorkspace(stores, home=home, readable=readable, writable=writable)
    return dict.fromkeys(served, opened)


def _stores(settings: Settings, account: Account | None, named: Collection[str]) -> Iterator[Any]:
    if account is not None:
        azure = optional("lucius.workspaces.azure_blob", "LUCIUS_BLOB_CONNECTION", "azure")
        yield azure.blobs(account)
    if "s3" in named:
        clear = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
        given = {"LUCIUS_S3_ENDPOINT": settings.s3_endpoint}
        yield _buckets("s3").s3(_endpoint(given, S3_ENDPOINTS, clear=clear))
    if "gs" in named:
        given = {"LUCIUS_GCS_ENDPOINT": settings.gcs_endpoint}
        yield _buckets("gs").gcs(_endpoint(given, GCS_ENDPOINTS))


def _buckets(scheme: str) -> ModuleType:
    return optional("lucius.workspaces.buckets", f"a place at {scheme}://", "s3")


def _endpoint(given: dict[str, str], standard: Sequence[str], *, clear: bool = False) -> str:
    """Keys and documents do not cross a network in the clear, unless someone has said so."""
    named = given | {name: os.environ.get(name, "") for name in standard}
    name, url = next(((name, url) for name, url in named.items() if url), ("", ""))
    if url and not is_guarded(url) and not (clear and url.startswith("http:")):
        raise UnsupportedError(
            f"{name}={show(url)}: it must begin with https://, or with http:// on this machine. A store of S3"
            " in a network that is trusted may be called over http:// with AWS_ALLOW_HTTP=true"
        )
    return url.rstrip("/")


def _helps(place: str) -> str:
    if scheme_of(place) in BLOB_SCHEMES:
        return (
            "set LUCIUS_BLOB_CONNECTION to a connection string of its account, or to"
            " https://NAME.blob.core.windows.net for the identity of the process. Other https addresses are"
            " for inputs alone"
        )
    return (
        f"the services of this build read and write {', '.join(SERVED_SCHEMES)}; run them elsewhere (lucius"
        " up --no-services)"
    )


def job_workspaces(
    settings: Settings, workspace: Workspace, *, readonly: bool = False
) -> JobWorkspaces:
    """The workspaces of all jobs."""
    home = f"{settings.workspace_url.rstrip('/')}/{settings.system}/"
    return JobWorkspaces(workspace, home, "" if readonly else installation(settings))


def installation(settings: Settings) -> str:
    """Whose the workspaces and the bus are. Processes that share a ledger are one installation.

    An embedded one is named by a file in its data directory. Keys may be rotated, so they do not count.
    """
    if not settings.shared:
        return made_once(settings.data_dir / INSTALLATION_FILE).decode(errors="replace")
    return sha256(identity(settings).encode()).hexdigest()


def home_of(settings: Settings) -> str:
    """What worker ids of the services in this installation's process begin with."""
    whose = sha256(made_once(settings.data_dir / INSTALLATION_FILE)).hexdigest()[:8]
    return f"{EMBEDDED}{whose}/"


def check_workspace(settings: Settings) -> None:
    """Services that run here write where LUCIUS_WORKSPACE_URL says, or do not start."""
    scheme = scheme_of(settings.workspace_url)
    blobs = scheme in BLOB_SCHEMES and not settings.blob_connection
    if blobs or scheme not in SERVED_SCHEMES:
        url = f"LUCIUS_WORKSPACE_URL={show(settings.workspace_url)}"
        raise UnsupportedError(f"{url}: {_helps(settings.workspace_url)}")


def workspace_root(settings: Settings) -> Path:
    """Where the workspaces of the jobs lie; where they would, if they are not files."""
    if not settings.workspace_url.lower().startswith("file:"):
        return settings.data_dir.absolute() / "workspace"
    try:
        return Path(path_of(settings.workspace_url))
    except WorkspaceRefusedError as error:
        raise UnsupportedError(f"LUCIUS_WORKSPACE_URL: {error}") from error


def ingress_policy(settings: Settings) -> IngressPolicy:
    """No reference of a request leads to the secrets of this process, or to the work of others."""
    policy = settings.ingress_policy()
    kept = Places([settings.data_dir, workspace_root(settings)])
    remote = not settings.workspace_url.startswith("file:")
    home = f"{settings.workspace_url}/{settings.system}" if remote else ""
    return replace(policy, references=replace(policy.references, protects=kept.hold, home=home))
