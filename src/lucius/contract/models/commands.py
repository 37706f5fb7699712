"""What a client submits, and what it is answered at once.

Admission validates with the JSON schema of `Command`. What a schema cannot say is checked beside it: which
references are allowed, what looks like a credential, how large the whole may be, whether a text has invisible
characters.
"""

import re
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from lucius.contract.models.base import (
    INPUT,
    JOB_ID,
    NEW_JOB_ID,
    OUTPUT,
    TRACE,
    FaultView,
    JsonObject,
    RequestBody,
    View,
)
from lucius.contract.models.jobs import AnyJobState, JobId
from lucius.contract.words import (
    MAX_CALLBACK_URLS,
    MAX_ESCAPED,
    MAX_NAME,
    MAX_TEXT,
    MAX_URI,
    MODES,
    REASON,
    SCHEMA_VERSIONS,
    TRACEPARENT,
)


def _any_case(word: str) -> str:
    return "".join(f"[{letter}{letter.lower()}]" for letter in word)


def _reason(text: str) -> JsonObject:
    return {REASON: text}


def _traceparent(text: str) -> str:
    """The pattern looks ahead, which the regular expressions of pydantic cannot."""
    if re.fullmatch(TRACEPARENT, text) is None:
        raise ValueError("must be a W3C traceparent")
    return text


_MODE: Final = "|".join(map(_any_case, MODES))
ShortText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=r"\S")]
Uri = Annotated[str, Field(max_length=MAX_URI, pattern="^[A-Za-z][A-Za-z0-9+.-]*://")]


class Reference(RequestBody):
    """A reference with fields of its own beside the URI."""

    uri: Uri = Field(description="A URI without credentials", examples=[INPUT])


AnyReference = Uri | Reference
_REFERENCE: Final = _reason('must be a URI or an object with a "uri"')


class Command(RequestBody):
    """The envelope. Fields that are not listed here are kept and passed on in every directive."""

    tenant_id: Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=r"^\S(.*\S)?$")] = (
        Field(
            description="Without spaces at either end. Characters that storage must escape"
            f" (`/ \\ # ? | ~`) count four times, and {MAX_ESCAPED} are allowed in all",
            examples=["acme"],
            json_schema_extra=_reason(
                f"must have 1 to {MAX_NAME} characters, and no space at either end"
            ),
        )
    )
    request_type: ShortText = Field(
        description="Names a protocol; `->` and `→` are the same", examples=["OCR->EMBEDDING->SIS"]
    )
    input_ref: AnyReference = Field(
        description="The document: a URI without credentials, or an object that has one as `uri`;"
        " the rest of the object is passed on",
        examples=[{"uri": INPUT}],
        json_schema_extra=_REFERENCE,
    )
    output_ref: AnyReference = Field(
        description="Where the result goes, as `input_ref`; `{jobId}` in it stands for the id of the job",
        examples=[{"uri": OUTPUT}],
        json_schema_extra=_REFERENCE,
    )
    payload: JsonObject = Field(
        description="One step: its payload, whole. Several: `steps.<step_id>`, and no other ids"
        " there; or, without `steps`, one for all.",
        examples=[{"steps": {"sis": {"prompt_set": ["When does the agreement begin?"]}}}],
        json_schema_extra=_reason("must be an object"),
    )
    schema_version: Literal["v1", "1", "1.0"] = Field(
        description="The version of the envelope: `v1`. `1` and `1.0` are spellings of it, and"
        " make the same request for idempotency",
        examples=["v1"],
        json_schema_extra=_reason(f"must be one of {', '.join(SCHEMA_VERSIONS)}"),
    )
    mode: Annotated[str, Field(pattern=rf"^[ \t\r\n]*({_MODE})[ \t\r\n]*$")] | None = Field(
        None,
        description="`DEFAULT` (`SAFE` is a spelling of it) or `BURST`, in upper or lower case; else the"
        " tenant's or the global default",
        examples=list(MODES),
        json_schema_extra=_reason(f"must be one of {', '.join(MODES)}"),
    )
    doc_id: ShortText | None = Field(
        None,
        description="The id of the document, which spreads a tenant's work over the lanes."
        " Required in mode BURST",
        examples=["contract-17"],
    )
    idempotency_key: ShortText | None = Field(
        None,
        description="The same key finds the same job; the header `Idempotency-Key` counts too."
        " Without a key, the same command does",
        examples=["contract-17-january"],
    )
    callback_urls: (
        Annotated[
            list[
                Annotated[
                    str, Field(json_schema_extra={"format": "uri", **_reason("must be a URL")})
                ]
            ],
            Field(max_length=MAX_CALLBACK_URLS),
        ]
        | None
    ) = Field(
        None,
        description=f"At most {MAX_CALLBACK_URLS} completion webhooks",
        examples=[["https://client.example/lucius"]],
        json_schema_extra=_reason(f"must be a list of at most {MAX_CALLBACK_URLS} URLs"),
    )
    overwrite: bool | None = Field(
        None,
        description="Whether the output may replace what stands at `output_ref`. Else a file there"
        " that this job (or the one it redrives) did not write fails the last step",
        examples=[False],
        json_schema_extra=_reason("must be true or false"),
    )
    correlation_id: ShortText | None = Field(
        None,
        description="Shown in logs, spans, directives and webhooks; the header `X-Correlation-Id`"
        " counts too",
        examples=["order-4711"],
    )
    traceparent: Annotated[str, AfterValidator(_traceparent)] | None = Field(
        None,
        description="The client's trace (W3C); the header counts too",
        examples=[TRACE],
        json_schema_extra={
            "pattern": f"^{TRACEPARENT}$",
            **_reason("must be a W3C traceparent: 00-, 32 hex digits, -, 16 hex digits, -01"),
        },
    )
    tracestate: Any = Field(
        None,
        description="A W3C tracestate that goes with `traceparent`; dropped if it is not valid",
        examples=["vendor=1"],
    )


@cache
def envelope_schema() -> JsonObject:
    """The JSON schema of the envelope, without references: admission validates with it."""
    schema = Command.model_json_schema()
    inlined: JsonObject = _inlined(schema, schema.pop("$defs"))
    return inlined


def _inlined(node: Any, definitions: JsonObject) -> Any:
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return definitions[node["$ref"].rpartition("/")[2]]
    return {name: _inlined(each, definitions) for name, each in node.items()}


class SubmittedView(View):
    """A job is durable, or was before."""

    jobId: JobId
    state: AnyJobState = Field(description="Where the job is now", examples=["DISPATCHING"])
    duplicate: bool = Field(
        description="The same request was accepted before: this is its job", examples=[False]
    )
    warnings: list[FaultView] = Field(
        [],
        description="Fields that are kept though nobody knows them, where a known one may be meant",
    )


class RedrivenView(SubmittedView):
    """A job that takes over from a failed one."""

    jobId: str = Field(description="The id of the new job", examples=[NEW_JOB_ID])
    redrive_of: str = Field(description="The failed job that it took over from", examples=[JOB_ID])
