"""The workspaces of an installation's jobs: where they lie, and whose they are."""

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from lucius.core.errors import LuciusError, WorkspaceError
from lucius.ports.workspace import Workspace

log = logging.getLogger("lucius")

OWNER: Final = ".owner.json"
"""Beside the tenants' folders, none of which begins with a dot."""


class WorkspaceOwnedError(LuciusError):
    """The workspaces are those of another installation, which would lose them to our retention."""


@dataclass(frozen=True, slots=True)
class JobWorkspaces:
    """`home` is `<LUCIUS_WORKSPACE_URL>/<LUCIUS_SYSTEM>/`; `<tenant>/<jobId>/` are below it."""

    workspace: Workspace
    home: str
    installation: str

    @property
    def served(self) -> bool:
        """Whether they are in a storage that this process can reach at all."""
        return self.workspace.writable(self.home + OWNER)

    async def claim(self) -> None:
        """Say whose they are, at first use. WorkspaceOwnedError: they are another installation's."""
        mark = self.home + OWNER
        if not self.served:
            return
        own = json.dumps({"installation": self.installation}).encode()
        if await self.workspace.create(mark, own) or await self.workspace.read(mark) == own:
            return
        raise WorkspaceOwnedError(
            f"{self.home} has the workspaces of another installation, named in {mark}: give each its"
            " own LUCIUS_WORKSPACE_URL or LUCIUS_SYSTEM. If this one takes the other's place, copy the"
            " file `installation` from its data directory, or delete the mark"
        )

    async def folders(self) -> AsyncIterator[str]:
        """The workspace of each job, by its URI with a slash at its end.

        A tenant's folder that cannot be listed is named, and hides no other's.
        """
        if not self.served:
            return
        for tenant in await self.workspace.folders(self.home):
            try:
                found = await self.workspace.folders(tenant)
            except WorkspaceError as error:
                log.warning("the workspaces in %s are passed over: %s", tenant, error)
                continue
            for folder in found:
                if name_of(folder).startswith("job_"):
                    yield folder

    async def remove(self, folder: str) -> None:
        """One that cannot be removed is named, and keeps no other from it."""
        try:
            await self.workspace.remove(folder)
        except WorkspaceError as error:
            log.warning("the workspace %s is removed later: %s", folder, error)


def name_of(folder: str) -> str:
    """The id of the job whose workspace it is."""
    return folder.rstrip("/").rpartition("/")[2]
