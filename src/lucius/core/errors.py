"""The errors of the core and of the ports, in one tree. Vendor exceptions stop at the adapters."""

from typing import ClassVar


class LuciusError(Exception):
    """The root: everything that LUCIUS raises on purpose."""


class IllegalMoveError(LuciusError):
    """A decision tried a move that the transition table does not list: a defect, never bad input."""


class RequestError(LuciusError):
    """Bad input from outside. `code` is stable; `faults` name the fields."""

    def __init__(
        self, code: str, detail: str, *, faults: tuple[tuple[str, str], ...] = (), status: int = 422
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.faults = faults
        self.status = status


class LedgerError(LuciusError):
    """The ledger cannot be used."""


class LedgerUnavailableError(LedgerError):
    """The storage did not take or answer a request; nothing was acknowledged."""


class LedgerCorruptError(LedgerUnavailableError):
    """The storage is damaged; it is left untouched, and nothing was acknowledged."""


class LedgerRowUnreadableError(LedgerError):
    """One stored job cannot be read; it is left untouched, and no other job is concerned."""

    def __init__(self, job_id: str, why: str, *, tenant_id: str | None = None) -> None:
        super().__init__(f"job {job_id} cannot be read: {why}")
        self.job_id = job_id
        self.tenant_id = tenant_id
        """Whose job it is, as far as its row still says."""


class LedgerTooNewError(LedgerError):
    """The stored data was written by a newer version; it is left untouched."""


class LedgerLockedError(LedgerError):
    """Another process is writing to the same ledger."""


class BusError(LuciusError):
    """The bus cannot be used."""


class PublishRefusedError(BusError):
    """The bus refuses a message for its content, now and later. Other messages are not concerned."""


class BusUnavailableError(BusError):
    """The bus did not answer: whether a message was taken is unknown."""


class OtherDeploymentError(BusUnavailableError):
    """The topics belong to another deployment."""


class LockLostError(BusError):
    """The delivery's lock has run out or was settled; someone else may have the message."""


class ProtocolError(LuciusError):
    """A protocol file is not valid."""


class ConfigUnavailableError(LuciusError):
    """The configuration cannot be read now; nothing says that it is wrong."""


class EffectRefusedError(LuciusError):
    """An owed effect that must not be performed, now or later: it is given up at once."""


class WorkflowsUnavailableError(LuciusError):
    """Temporal, or the invoker before it, did not answer: nobody knows whether it was done."""


class WorkspaceError(LuciusError):
    """A workspace object could not be read or written. `code` is what a step fails with."""

    default_code: ClassVar[str] = "WORKSPACE_UNAVAILABLE"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.default_code


class WorkspaceRefusedError(WorkspaceError):
    """The reference leads outside, or to a store that is unfit for its use: trying again cannot help."""

    default_code = "REFERENCE_REFUSED"
