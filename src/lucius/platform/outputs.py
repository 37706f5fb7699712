"""What `execute()` gave back, checked before anything is committed or reported."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from lucius.core.json_faults import json_faults
from lucius.core.wire import MAX_REF, bounded_ref, plain_ref
from lucius.platform.errors import FatalError, InvalidOutputError, OutputMissingError
from lucius.platform.service import Output
from lucius.platform.task import Staged


def check_output(output: object) -> Output:
    """An `Output` whose `ref` everyone can carry: JSON, and short. A RESULT that is not is lost."""
    if not isinstance(output, Output):
        kind = type(output).__name__
        raise InvalidOutputError(f"execute() gave back a {kind}: give back an Output, or None")
    if output.ref is None or plain_ref(output.ref):
        return output
    for at, reason in json_faults(output.ref):
        raise InvalidOutputError(f"Output.ref{at} {reason}")
    try:
        json.dumps(output.ref)
    except (TypeError, ValueError) as error:
        raise InvalidOutputError(f"Output.ref is not JSON: {error}") from error
    if bounded_ref(output.ref) is not output.ref:
        raise InvalidOutputError(
            f"Output.ref is longer than {MAX_REF} characters: stage the content and refer to it"
        )
    return output


def main_output(output: Output, staged: Sequence[Staged]) -> Staged | None:
    """The staged object that is the step's output; None where it lives elsewhere (`Output.ref`)."""
    if output.name is None:
        if not staged and output.ref is None:
            raise OutputMissingError(
                "execute() staged nothing and named no Output.ref: a service without outputs has"
                " commit = False"
            )
        return staged[0] if staged else None
    for item in staged:
        if item.name == output.name:
            return item
    raise FatalError(f"the output {output.name!r} was not staged", code="OUTPUT_NOT_STAGED")


def uncommitted(output: object, staged: Collection[str]) -> Any:
    """The reference that a service without a commit reports. None says that there is no output."""
    checked = check_output(output)
    if checked.name is not None or (staged and checked.ref is None):
        raise InvalidOutputError(
            "execute() staged an output, and the service has commit = False: nobody would commit it"
        )
    return checked.ref
