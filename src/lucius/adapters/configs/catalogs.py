"""Builds one catalog from all protocol documents. Contradictions between them are refused."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import Any, Final

import jsonschema_rs
import yaml

from lucius.core.errors import ProtocolError
from lucius.core.idempotency import canonical_json, normal_request_type
from lucius.core.limits import MAX_STAGE_STEPS, MAX_STEPS, pointer
from lucius.core.plan import BACKOFFS, Mode, RetryPolicy, StepPlan, output_folders
from lucius.core.routing import parse_mode
from lucius.ports.config import Catalog, JobProtocol, TenantConfig

# Reads one protocol document, YAML or JSON. Unknown fields, wrong types and repeated keys are refused.


@dataclass(frozen=True, slots=True)
class Document:
    """The content of one file. Messages call the file by `name`, with the line where its text is known."""

    name: str
    body: dict[str, Any]
    text: str = ""

    def place(self, at: str) -> str:
        """A JSON pointer, as messages name the place: file, line and pointer."""
        line = line_at(self.text, at) if self.text else None
        return f"{self.name}:{line}: {at or '/'}" if line else f"{self.name}: {at or '/'}"


class _StrictLoader(yaml.SafeLoader):
    """YAML with the types of JSON: a date stays text, and a key may stand only once."""

    yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in rules if tag != "tag:yaml.org,2002:timestamp"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            text = f"{key.tag} {key.value}"
            if text in names:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value} is there twice", key.start_mark
                )
            names.add(text)
        return super().construct_mapping(node, deep)


def parse_document(name: str, text: str) -> Document:
    """Raises ProtocolError with the name, the place and the reason."""
    try:
        body = parse_json(name, text) if name.endswith(".json") else _yaml(text)
        body = json.loads(json.dumps({} if body is None else body, allow_nan=False))
    except yaml.YAMLError as error:
        raise ProtocolError(f"{name}: not valid YAML: {_in_one_line(error)}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(name, error) from error
    return checked_document(name, body, text)


def line_at(text: str, at: str) -> int | None:
    """The line of a place in YAML or JSON, from 1; of the nearest above it, where there is no such place."""
    try:
        node = yaml.compose(text, Loader=_StrictLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    line = None
    for part in at.split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, yaml.MappingNode) and part:
            found = [(key, value) for key, value in node.value if key.value == part]
            if not found:
                break
            line, node = found[0][0].start_mark.line, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line
        elif part:
            break
    return line + 1 if line is not None else None


def parse_json(name: str, text: str) -> Any:
    """Raises ProtocolError: no key twice, no numbers that JSON does not have."""
    try:
        found = json.loads(text, object_pairs_hook=_once)
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(name, error) from error
    return found


def _not_json(name: str, error: Exception) -> ProtocolError:
    return ProtocolError(f"{name}: not valid JSON: {error}")


def checked_document(name: str, body: Any, text: str = "") -> Document:
    """Raises ProtocolError that lists every place where the body is not one of a protocol file."""
    document, faults = Document(name, body, text), schema_faults(_shape(), body)
    if faults:
        said = (f"{document.place(at)}: {reason}" for at, reason in faults)
        raise ProtocolError("\n".join(said))
    return document


def _yaml(text: str) -> Any:
    return yaml.load(text, Loader=_StrictLoader)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice} is there twice")
    return found


def _in_one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())


@cache
def _shape() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        json.loads(files("lucius.adapters.configs").joinpath("schema.json").read_text())
    )


def schema_faults(validator: jsonschema_rs.Validator, value: Any) -> list[tuple[str, str]]:
    return [
        (pointer(*error.instance_path), error.message) for error in validator.iter_errors(value)
    ]


ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
_WAITS: Final = {f"{name}_seconds": name for name in BACKOFFS}
_SECONDS: Final = {"ack_timeout_seconds": "ack_timeout", "lease_seconds": "lease"}


@dataclass(frozen=True, slots=True)
class _StepType:
    name: str
    service: str
    schema: Mapping[str, Any]
    policy: RetryPolicy


@dataclass(slots=True)
class _Reading:
    """The definitions that have been read so far, and their faults."""

    policy: RetryPolicy
    faults: list[str] = field(default_factory=list)
    step_types: dict[str, _StepType] = field(default_factory=dict)
    protocols: dict[str, JobProtocol] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    tenants: dict[str, TenantConfig] = field(default_factory=dict)
    seen: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    documents: dict[str, Document] = field(default_factory=dict)

    def fault(self, name: str, at: str, reason: str) -> None:
        document = self.documents.get(name, Document(name, {}))
        self.faults.append(f"{document.place(at)}: {reason}")

    def first(self, kind: str, key: str, name: str, at: str) -> bool:
        """Whether the name is new. A second definition is a fault that says where the first one is."""
        before = self.seen.setdefault((kind, key), (name, at))
        if before == (name, at):
            return True
        self.fault(name, at, f"the {kind} {key} is already defined in {before[0]} {before[1]}")
        return False


def build_catalog(documents: Sequence[Document], policy: RetryPolicy | None = None) -> Catalog:
    """Raises one ProtocolError that lists every fault of all documents."""
    named = {document.name: document for document in documents}
    reading = _Reading(policy or RetryPolicy(), documents=named)
    for document in documents:
        _read_step_types(reading, document)
        _read_defaults(reading, document)
        _read_tenants(reading, document)
    for document in documents:
        _read_protocols(reading, document)
    _check_tenants(reading)
    if not reading.protocols and not reading.faults:
        reading.fault("protocols", "/protocols", "no protocol is defined")
    if reading.faults:
        raise ProtocolError("\n".join(reading.faults))
    return Catalog(
        protocols=reading.protocols,
        default_mode=_mode(reading.defaults) or Mode.DEFAULT,
        burst_allowed=reading.defaults.get("burst_allowed", True),
        tenants=reading.tenants,
        version=_version(documents, reading.policy),
    )


def _version(documents: Sequence[Document], policy: RetryPolicy) -> str:
    content = canonical_json([document.body for document in documents])
    return sha256(f"{content}{policy}".encode()).hexdigest()[:16]


def _mode(section: Mapping[str, Any]) -> Mode | None:
    return parse_mode(section["mode"]) if "mode" in section else None


# -- step types ------------------------------------------------------------------------------


def _read_step_types(reading: _Reading, document: Document) -> None:
    for name, section in document.body.get("step_types", {}).items():
        at = f"/step_types/{name}"
        if not reading.first("step type", name, document.name, at):
            continue
        schema = section.get("payload_schema", ANY_OBJECT)
        reason = _schema_fault(schema)
        if reason is not None:
            reading.fault(document.name, f"{at}/payload_schema{reason[0]}", reason[1])
        reading.step_types[name] = _StepType(
            name, section["service"], schema, _overridden(reading.policy, section)
        )


def _schema_fault(schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why a schema is refused: it must be valid JSON Schema, and refer to no other document."""
    try:
        jsonschema_rs.Draft202012Validator(dict(schema), offline=True)
    except jsonschema_rs.ValidationError as error:
        return pointer(*error.instance_path), error.message
    except ValueError as error:
        return "", str(error)
    return None


def _overridden(policy: RetryPolicy, section: Mapping[str, Any]) -> RetryPolicy:
    changes: dict[str, Any] = {}
    if "max_attempts" in section:
        changes["max_attempts"] = section["max_attempts"]
    for key, name in _SECONDS.items():
        if key in section:
            changes[name] = timedelta(seconds=section[key])
    for key, name in _WAITS.items():
        if key in section:
            changes[name] = tuple(timedelta(seconds=wait) for wait in section[key])
    return replace(policy, **changes) if changes else policy


# -- protocols -------------------------------------------------------------------------------


def _read_protocols(reading: _Reading, document: Document) -> None:
    for index, section in enumerate(document.body.get("protocols", ())):
        at = f"/protocols/{index}"
        request_type = normal_request_type(section["request_type"])
        new = reading.first("request type", request_type, document.name, f"{at}/request_type")
        protocol_id = section["protocol_id"]
        new &= reading.first("protocol", protocol_id, document.name, f"{at}/protocol_id")
        if not request_type.isprintable() or not all(request_type.split("->")):
            reading.fault(document.name, f"{at}/request_type", "must be names joined by ->")
        steps = list(_steps(reading, document.name, f"{at}/steps", section["steps"]))
        _check_steps(reading, document.name, f"{at}/steps", [plan for plan, _ in steps])
        if new:
            reading.protocols[request_type] = JobProtocol(
                protocol_id=protocol_id,
                request_type=request_type,
                steps=tuple(plan for plan, _ in steps),
                schemas={plan.step_id: schema for plan, schema in steps},
                description=section.get("description", ""),
            )


def _steps(
    reading: _Reading, name: str, where: str, sections: Sequence[Any]
) -> Iterator[tuple[StepPlan, Mapping[str, Any]]]:
    stage = 0
    for index, given in enumerate(sections):
        section: Mapping[str, Any] = {"type": given} if isinstance(given, str) else given
        known = reading.step_types.get(section["type"])
        at = f"{where}/{index}"
        if known is None:
            reading.fault(name, at, f"there is no step type {section['type']}")
            continue
        if section.get("stage", stage + 1) < stage:
            reading.fault(name, f"{at}/stage", "steps must be listed in the order of their stages")
        stage = section.get("stage", stage + 1)
        step_id = section.get("id", known.name.lower())
        policy = _overridden(known.policy, section)
        yield StepPlan(step_id, known.name, known.service, stage, policy), known.schema


def _check_steps(reading: _Reading, name: str, where: str, steps: list[StepPlan]) -> None:
    if len(steps) > MAX_STEPS:
        reading.fault(name, where, f"a protocol has at most {MAX_STEPS} steps")
    ids = [step.step_id for step in steps]
    for step_id in sorted({step_id for step_id in ids if ids.count(step_id) > 1}):
        reading.fault(name, where, f"the step id {step_id} is there twice: give each an id")
    places = [folder.casefold() for folder in output_folders(steps)]
    for step, place in zip(steps, places, strict=True):
        if places.count(place) > 1 and ids.count(step.step_id) == 1:
            reason = f"the step {step.step_id} would write where another does: give it another id"
            reading.fault(name, where, reason)
    for stage, together in groupby(steps, key=lambda step: step.stage):
        if len(list(together)) > MAX_STAGE_STEPS:
            reason = f"stage {stage} has more than {MAX_STAGE_STEPS} steps that run together"
            reading.fault(name, where, reason)


# -- defaults and tenants --------------------------------------------------------------------


def _read_defaults(reading: _Reading, document: Document) -> None:
    for key, value in document.body.get("defaults", {}).items():
        if reading.first("default", key, document.name, f"/defaults/{key}"):
            reading.defaults[key] = value


def _read_tenants(reading: _Reading, document: Document) -> None:
    for tenant_id, section in document.body.get("tenants", {}).items():
        if reading.first("tenant", tenant_id, document.name, pointer("tenants", tenant_id)):
            reading.tenants[tenant_id] = TenantConfig(
                mode=_mode(section),
                burst_allowed=section.get("burst_allowed"),
                max_inflight=section.get("max_inflight"),
                pools=section.get("pools", {}),
            )


def _check_tenants(reading: _Reading) -> None:
    """A tenant that is put in mode BURST must be allowed to use it."""
    default = reading.defaults.get("burst_allowed", True)
    for tenant_id, tenant in reading.tenants.items():
        allowed = default if tenant.burst_allowed is None else tenant.burst_allowed
        if tenant.mode is Mode.BURST and not allowed:
            name, at = reading.seen["tenant", tenant_id]
            reading.fault(name, f"{at}/mode", "is BURST, but burst_allowed is false")
    if _mode(reading.defaults) is Mode.BURST and not default:
        name, at = reading.seen["default", "mode"]
        reading.fault(name, at, "is BURST, but burst_allowed is false")
