"""An installation in a folder of its own: its settings, its command, and the workspaces it leaves."""

from pathlib import Path
from typing import Any

from lucius.app.adapters import open_workspace
from lucius.app.settings import Settings, load_settings
from lucius.core.job import Job
from lucius.platform.commit import COMMITS

PROTOCOL = """
step_types: {SCRIPTED: {service: scripted}}
protocols: [{request_type: SCRIPTED, protocol_id: scripted_v1, steps: [SCRIPTED]}]
"""


def envelope(settings: Settings, **payload: object) -> dict[str, Any]:
    return {
        "tenant_id": "acme",
        "request_type": "SCRIPTED",
        "input_ref": "s3://bucket/in",
        "output_ref": f"file://{settings.output_roots[0]}/{{jobId}}.txt",
        "payload": payload,
        "schema_version": "v1",
    }


def settings_in(folder: Path, **environ: str) -> Settings:
    protocols = folder / "protocols.yaml"
    protocols.write_text(PROTOCOL)
    return load_settings(
        {
            "LUCIUS_DATA_DIR": str(folder / "data"),
            "LUCIUS_PROTOCOLS": str(protocols),
            "LUCIUS_OUTPUT_ROOTS": str(folder / "out"),
            **environ,
        }
    )


def folder_of(settings: Settings, job: Job) -> Path:
    (folder,) = (path for path in job_folders(settings) if path.name == job.job_id)
    return folder


def job_folders(settings: Settings) -> list[Path]:
    return sorted((settings.data_dir / "workspace" / settings.system).glob("*/job_*"))


async def record_of(settings: Settings, job: Job) -> tuple[str, bytes]:
    """The commit record of a job that has one: where it is, and what it says."""
    workspace = open_workspace(settings)
    (uri,) = await workspace.list(f"{folder_of(settings, job).as_uri()}/{COMMITS}")
    return uri, await workspace.read(uri) or b""
