"""Bicep files as a syntax tree: what they declare, what they use, and what a module is given."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

PARSER = Parser(Language(tree_sitter_bicep.language()))
DECLARATIONS = {
    "parameter_declaration": "param",
    "variable_declaration": "var",
    "resource_declaration": "resource",
    "module_declaration": "module",
    "output_declaration": "output",
}
FUNCTIONS = {
    "concat",
    "empty",
    "environment",
    "guid",
    "length",
    "map",
    "range",
    "resourceGroup",
    "split",
    "subscriptionResourceId",
    "take",
    "uniqueString",
}
"""Functions of the language that the files use."""


def text_of(node: Node) -> str:
    return (node.text or b"").decode()


def within(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from within(child)


@dataclass(frozen=True)
class Declaration:
    kind: str
    name: str
    node: Node

    @property
    def has_default(self) -> bool:
        return any(child.type == "=" for child in self.node.children)

    @property
    def source(self) -> str:
        """The type of a resource, or the path of a module."""
        return next(text_of(each) for each in self.node.children if each.type == "string").strip(
            "'"
        )

    def given(self) -> set[str]:
        """The names of the parameters that a module is given."""
        for each in within(self.node):
            if each.type == "object_property" and text_of(each.children[0]) == "params":
                inner = next(child for child in each.children if child.type == "object")
                return {
                    text_of(child.children[0])
                    for child in inner.children
                    if child.type == "object_property"
                }
        return set()


@dataclass(frozen=True)
class BicepFile:
    path: Path

    @cached_property
    def tree(self) -> Node:
        return PARSER.parse(self.path.read_bytes()).root_node

    def declared(self, *kinds: str) -> dict[str, Declaration]:
        found = (self._declaration(each) for each in self.tree.children)
        return {each.name: each for each in found if each is not None and each.kind in kinds}

    def _declaration(self, node: Node) -> Declaration | None:
        kind = DECLARATIONS.get(node.type)
        if kind is None:
            return None
        name = next(child for child in node.children if child.type == "identifier")
        return Declaration(kind, text_of(name), node)

    def used(self) -> set[str]:
        """Every name that stands for a value, loop variables included; no keys of objects."""
        lines = (each for each in self.tree.children if each.type != "decorators")
        return {name for each in lines for name in _uses(each)}

    def loop_variables(self) -> set[str]:
        """Those of `for`, alone or with their index, and the arguments of lambda expressions."""
        loops = (each for each in within(self.tree) if each.type == "for_statement")
        found = [loop.child_by_field_name("initializer") for loop in loops]
        kinds = ("loop_variable", "loop_enumerator")
        found += [each for each in within(self.tree) if each.type in kinds]
        found += [
            each.children[0] for each in within(self.tree) if each.type == "lambda_expression"
        ]
        return {text_of(each) for each in found if each is not None}

    def outputs_used(self) -> set[tuple[str, str]]:
        """`module.outputs.name`, as (module, name)."""
        parts = (
            text_of(each).partition("[")[0].split(".") + text_of(each).partition("].")[2].split(".")
            if "[" in text_of(each)
            else text_of(each).split(".")
            for each in within(self.tree)
            if each.type == "member_expression"
        )
        return {(each[0], each[2]) for each in parts if len(each) == 3 and each[1] == "outputs"}


def value_of(node: Node, names: Mapping[str, Any]) -> Any:
    """An expression of access.bicep, for these values of its names."""
    parts = [each for each in node.children if each.is_named]
    match node.type:
        case "number":
            return int(text_of(node))
        case "identifier":
            return names[text_of(node)]
        case "interpolation":
            return value_of(parts[0], names)
        case "string":
            return "".join(
                text_of(each) if each.type == "string_content" else str(value_of(each, names))
                for each in parts
            )
        case "array":
            return [value_of(each, names) for each in parts]
        case "object":
            return {text_of(each.children[0]): value_of(each.children[2], names) for each in parts}
        case "ternary_expression":
            return value_of(parts[1 if value_of(parts[0], names) else 2], names)
        case "binary_expression":
            left, right = (value_of(each, names) for each in parts)
            return BINARY[text_of(node.children[1])](left, right)
        case "subscript_expression":
            return value_of(parts[0], names)[value_of(parts[1], names)]
        case "for_statement":
            name, items, body = parts
            return [
                value_of(body, {**names, text_of(name): each}) for each in value_of(items, names)
            ]
        case "lambda_expression":
            return lambda each: value_of(parts[1], {**names, text_of(parts[0]): each})
        case "call_expression":
            given = [value_of(each, names) for each in parts[1].children if each.is_named]
            return CALLS[text_of(parts[0])](*given)
    raise ValueError(f"{node.type} is not known here: {text_of(node)}")


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda left, right: left == right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left // right,
    "%": lambda left, right: left % right,
}
CALLS: dict[str, Callable[..., Any]] = {
    "range": lambda start, count: list(range(start, start + count)),
    "length": len,
    "concat": lambda *lists: [item for each in lists for item in each],
    "map": lambda items, change: [change(each) for each in items],
}


def _uses(node: Node) -> Iterator[str]:
    skipped = None
    if node.type in (*DECLARATIONS, "object_property"):
        skipped = next(child for child in node.children if child.type == "identifier")
    for child in node.children:
        if child.type == "identifier" and child != skipped:
            yield text_of(child)
        yield from _uses(child)
