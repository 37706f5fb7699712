"""Where outputs lie, by the scheme of their references, and whose they are."""

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from lucius.admission.ingress import IngressPolicy
from lucius.bootstrap.adapters.unsupported import UnsupportedError, optional
from lucius.bootstrap.secrets import made_once
from lucius.core.errors import WorkspaceRefusedError
from lucius.engines.outbox.ownership import EMBEDDED
from lucius.ports.workspace import Workspace
from lucius.settings import Settings
from lucius.settings.behaviour import EMBEDDED_BACKENDS
from lucius.settings.kinds import show
from lucius.upkeep.job_workspaces import JobWorkspaces
from lucius.workspaces.by_scheme import WorkspaceByScheme
from lucius.workspaces.local import LocalWorkspace, path_of
from lucius.workspaces.memory import MemoryWorkspace
from lucius.workspaces.places import Places

INSTALLATION_FILE: Final = "installation"
WORKSPACE_SCHEMES: Final = ("file", "mem")
BLOB_SCHEMES: Final = ("az", "abfs", "abfss", "https")


def open_workspace(settings: Settings, *, restores: bool = True) -> Workspace:
    """The scheme of a reference chooses. `file` reaches the workspaces and the roots in the settings.

    On a running event loop. `restores`: write again what a loss of power took; another process may have.
    """
    local = LocalWorkspace(
        workspace_root(settings),
        readable=[Path(root).expanduser() for root in settings.input_roots if not is_url(root)],
        writable=[Path(root).expanduser() for root in settings.output_roots if not is_url(root)],
        protected=[settings.data_dir],
    )
    if restores:
        local.recover()
    local.settle_left()
    memory = MemoryWorkspace(jobs=settings.workspace_url)
    return WorkspaceByScheme({"file": local, "mem": memory, **blobs(settings)})


def is_url(root: str) -> bool:
    return "://" in root


def blobs(settings: Settings) -> dict[str, Workspace]:
    """By scheme."""
    roots = [root for root in (*settings.input_roots, *settings.output_roots) if is_url(root)]
    if not settings.blob_connection and not roots:
        return {}
    if not settings.blob_connection:
        raise UnsupportedError(
            f"LUCIUS_INPUT_ROOTS or LUCIUS_OUTPUT_ROOTS name {', '.join(roots)}:"
            " set LUCIUS_BLOB_CONNECTION"
        )
    azure = optional("lucius.workspaces.azure_blob", "LUCIUS_BLOB_CONNECTION", "azure")
    try:
        opened: Workspace = azure.open_blobs(
            settings.blob_connection.get_secret_value(),
            home=settings.workspace_url,
            readable=[root for root in settings.input_roots if is_url(root)],
            writable=[root for root in settings.output_roots if is_url(root)],
        )
    except WorkspaceRefusedError as error:
        raise UnsupportedError(
            f"LUCIUS_WORKSPACE_URL, LUCIUS_INPUT_ROOTS or LUCIUS_OUTPUT_ROOTS: {error}"
        ) from error
    return dict.fromkeys(BLOB_SCHEMES, opened)


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
    if settings.storage_backend in EMBEDDED_BACKENDS:
        return made_once(settings.data_dir / INSTALLATION_FILE).decode(errors="replace")
    connection = settings.table_connection.get_secret_value().lower()
    named = re.search("accountname=([^;]+)", connection) or re.search(
        "https://([^./]+)", connection
    )
    account = named[1] if named is not None else ""
    table = settings.jobs_table if settings.storage_backend == "table" else settings.ledger_table
    return sha256(f"{account}/{settings.storage_backend}/{table}".encode()).hexdigest()


def home_of(settings: Settings) -> str:
    """What worker ids of the services in this installation's process begin with."""
    whose = sha256(made_once(settings.data_dir / INSTALLATION_FILE)).hexdigest()[:8]
    return f"{EMBEDDED}{whose}/"


def check_workspace(settings: Settings) -> None:
    """Services that run here write where LUCIUS_WORKSPACE_URL says, or do not start."""
    scheme = settings.workspace_url.partition(":")[0].lower()
    url = f"LUCIUS_WORKSPACE_URL={show(settings.workspace_url)}"
    if scheme in BLOB_SCHEMES and not settings.blob_connection:
        raise UnsupportedError(
            f"{url}: set LUCIUS_BLOB_CONNECTION to a connection string of its account, or to"
            " https://NAME.blob.core.windows.net for the identity of the process"
        )
    if scheme not in (*WORKSPACE_SCHEMES, *BLOB_SCHEMES):
        raise UnsupportedError(
            f"{url}: the services of this build write to"
            f" {', '.join(WORKSPACE_SCHEMES)} or {', '.join(BLOB_SCHEMES)};"
            " run them elsewhere (lucius up --no-services)"
        )


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
