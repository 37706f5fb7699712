"""Every error code there is: its status, its meaning, what to do about it.

OpenAPI and the reference page are made from this. A route names those that it answers with.
"""

from typing import Final

from lucius.contract.codes.callbacks import CALLBACKS
from lucius.contract.codes.callers import CALLERS
from lucius.contract.codes.envelope import ENVELOPE
from lucius.contract.codes.jobs import JOBS
from lucius.contract.codes.kinds import ProblemCode
from lucius.contract.codes.reading import READING
from lucius.contract.codes.server import SERVER

__all__ = ["CODES", "ProblemCode"]

CODES: Final = {
    known.code: known for known in (*READING, *ENVELOPE, *JOBS, *CALLBACKS, *CALLERS, *SERVER)
}
