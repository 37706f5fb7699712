"""Problem documents (RFC 9457) and the faults in them."""

from typing import Annotated

from pydantic import Field

from lucius.contract.models.base import MayMiss, View

Code = Annotated[
    str,
    Field(
        description="A stable code; docs/reference/errors.md explains each",
        examples=["JOB_NOT_FOUND"],
    ),
]
Detail = Annotated[
    str,
    Field(
        description="What was wrong this time",
        examples=["The id names no job that the caller may see."],
    ),
]


class FaultView(View):
    """One fault, or one warning, with its place."""

    detail: str = Field(
        description="What is wrong there",
        examples=["is not known here: did you mean `language`?"],
    )
    pointer: MayMiss[str] = Field(
        None, description="Where in the body, as a JSON pointer", examples=["/payload/langauge"]
    )
    parameter: MayMiss[str] = Field(
        None, description="The name of the query parameter or header", examples=["limit"]
    )


class ProblemView(View):
    """RFC 9457. `code` is stable; docs/reference/errors.md explains each."""

    type: str = Field(
        description="The code as a URN", examples=["urn:lucius:problem:JOB_NOT_FOUND"]
    )
    title: str = Field(
        description="What the code means, in a few words", examples=["There is no such job"]
    )
    status: int = Field(description="The HTTP status", examples=[404])
    code: Code
    detail: Detail
    errors: list[FaultView] = Field([], description="Every fault, with its place", max_length=100)


class UnreadyView(ProblemView):
    """`/readyz` while a dependency is down: a problem that names every dependency, as `ReadinessView`."""

    checks: MayMiss[dict[str, str]] = Field(
        None,
        description="Every dependency, and whether it is well",
        examples=[{"ledger": "ok", "bus": "failed"}],
    )
    warnings: MayMiss[dict[str, str]] = Field(
        None, description="What is wrong besides, by part", examples=[{}]
    )
