"""What all models of the contract have in common: how they read, what they publish, their examples."""

from datetime import datetime
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.annotated_handlers import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from lucius.contract.words import JsonObject as JsonObject

T = TypeVar("T")

JOB_ID: Final = "job_0199c1a52e50a1b2c3d4e5f601234567"
NEW_JOB_ID: Final = "job_0199c1a6f3a8b7c6d5e4f30201234567"
LEASE_ID: Final = "6f1d2c3b4a5968778695a4b3c2d1e0f9"
AT: Final = "2026-01-27T10:00:00.250000Z"
LATER: Final = "2026-01-27T10:00:04.125000Z"
TRACE: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
INPUT: Final = "s3://documents/contract.pdf"
OUTPUT: Final = "s3://results/contract.json"
TOKEN: Final = "k1.eyJhIjoxfQ.c2ln"


def plainly(schema: JsonObject) -> None:
    """Without the title that only repeats a name, without `default: null` where null is no value, and
    `type: [X, null]` instead of two branches.
    """
    for rule in schema.get("properties", {}).values():
        rule.pop("title", None)
        branches = rule.get("anyOf")
        if branches and len(branches) == 2 and branches[1] == {"type": "null"}:
            if isinstance(branches[0].get("type"), str) and "enum" not in branches[0]:
                del rule["anyOf"]
                rule |= {**branches[0], "type": [branches[0]["type"], "null"]}
        if rule.get("default", 0) is None:
            del rule["default"]


class Model(BaseModel):
    """Contracts only grow: fields that this version does not know are kept.

    Modules and classes are built when they are first used, because clients import them at their start.
    """

    model_config = ConfigDict(extra="allow", defer_build=True, json_schema_extra=plainly)


class View(Model):
    """Part of an answer."""


class RequestBody(Model):
    """Part of a request. A number is a number: text and booleans are not taken for one."""

    model_config = ConfigDict(strict=True)


class _NotNull:
    """The field may be left out, and is None then. Null is no value of it."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        inner: CoreSchema = schema["schema"] if schema["type"] == "nullable" else schema
        return inner


MayMiss = Annotated[T | None, _NotNull()]
"""It is left out, or has a value that is not null."""


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


AnyWhole: Final = BeforeValidator(_whole)
"""1.0 is the whole number 1, because JSON has one kind of number."""


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


AnyCase = BeforeValidator(_upper)
"""Words that are published in upper case and read in any."""

Instant = AwareDatetime
"""RFC 3339 in UTC, with Z."""


def _moment(value: Any) -> Any:
    """As ISO 8601; without a zone it is UTC."""
    if not isinstance(value, str):
        return value
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("must be an RFC 3339 instant") from None
    return value


GivenMoment = Annotated[
    str,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An instant that a caller names. It stays a text; that it is one is checked."""

LATER_WORDS: Final = Field(union_mode="left_to_right")
"""Of a word that may be one that only a later version knows: known ones are read as such, others as texts."""


def words(*known: str) -> WithJsonSchema:
    """What is published of such a word."""
    return WithJsonSchema({"type": "string", "enum": list(known)})


def example_of(model: type[BaseModel], *also: str) -> JsonObject:
    """A value of the model: every field that is required, and those of the others that `also` names."""
    model.model_rebuild()
    return {
        name: example_of_field(field.annotation, field.examples)
        for name, field in model.model_fields.items()
        if field.is_required() or name in also
    }


def example_of_field(annotation: Any, examples: list[Any] | None) -> Any:
    """The field's own example; what is made of models is made of their examples."""
    if examples:
        return examples[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return example_of(annotation)
    of = get_args(annotation)[0]
    return (
        [example_of_field(of, None)]
        if get_origin(annotation) is list
        else example_of_field(of, None)
    )


# Problem documents (RFC 9457) and the faults in them.

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
