"""What panels of the page are, read from `types.d.ts`: records that real answers are held against, and a JSON Schema.

    python -m tools.page_types        # writes docs/schemas/page-panels.json

The shapes are written once, in the language of the scripts that read them, where `tsc --noEmit` checks those scripts.
Interfaces of these types are read: `string`, `number`, `Integer`, `boolean`, `null`, `any`, other interfaces,
`Array<T>`, `Record<string, T>`, and unions of them.
"""

import json
import re
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[1]
TYPES = ROOT / "src" / "dragonscale" / "web" / "types.d.ts"
SCHEMA = ROOT / "docs" / "schemas" / "page-panels.json"
_PLAIN = {"string": str, "number": float, "Integer": int, "boolean": bool, "null": None, "any": Any}
_INTERFACE = re.compile(r"(?:/\*\* ([^*]+) \*/\s+)?export interface (\w+)(?: extends (\w+))? \{([^}]*)\}")


class Shapes:
    """The interfaces of a file of types, each as a record that refuses unknown keys.

    >>> shapes = Shapes("export interface Point { x: number; note?: string | null }")
    >>> msgspec.convert({"x": 1, "z": 2}, shapes.record("Point"))
    Traceback (most recent call last):
    msgspec.ValidationError: Object contains unknown field `z`
    """

    def __init__(self, text: str) -> None:
        self.read = {name: (about, parent, body) for about, name, parent, body in _INTERFACE.findall(text)}
        self.records: dict[str, type[msgspec.Struct]] = {}

    def fields(self, name: str) -> dict[str, tuple[str, bool]]:
        """The type of each key of an interface, and whether it may be missing."""
        _, parent, body = self.read[name]
        rows = (row.partition(":") for row in body.split(";") if row.strip())
        own = {key.strip().rstrip("?"): (what.strip(), key.endswith("?")) for key, _, what in rows}
        return (self.fields(parent) if parent else {}) | own

    def record(self, name: str) -> type[msgspec.Struct]:
        """An interface as a record."""
        if name not in self.records:
            fields = []
            for key, (what, optional) in self.fields(name).items():
                kind = self.type_of(what)
                fields.append((f"_{key}", kind | msgspec.UnsetType, msgspec.UNSET) if optional else (f"_{key}", kind))
            self.records[name] = msgspec.defstruct(
                name,
                sorted(fields, key=len),
                namespace={"__doc__": self.read[name][0] or None},
                rename=lambda key: key[1:],
                forbid_unknown_fields=True,
            )
        return self.records[name]

    def type_of(self, what: str) -> Any:
        """A type.

        >>> Shapes("").type_of("Array<string | null>")
        list[str | None]
        """
        one_of = re.split(r" \| (?![^<]*>)", what)  # outside of angle brackets
        if len(one_of) > 1:
            return reduce(or_, map(self.type_of, one_of))
        if held := re.fullmatch(r"Array<(.+)>", what):
            return list[self.type_of(held[1])]
        if held := re.fullmatch(r"Record<string, (.+)>", what):
            return dict[str, self.type_of(held[1])]
        return _PLAIN[what] if what in _PLAIN else self.record(what)

    def panels(self) -> dict[str, dict[str, Any]]:
        """The record of every panel by view."""
        views = {view: self.fields(what) for view, (what, _) in self.fields("Views").items()}
        return {view: {name: self.type_of(what) for name, (what, _) in of.items()} for view, of in views.items()}


def panel_shapes() -> dict[str, dict[str, Any]]:
    """The record of every panel by view; `record` is anything, since `--json` has schemas of its own."""
    return Shapes(TYPES.read_text(encoding="utf-8")).panels()


def schema_text() -> str:
    """The schema's file: every panel's record under VIEW.PANEL, and the pieces of them."""
    names = {f"{view}.{name}": shape for view, panels in panel_shapes().items() for name, shape in panels.items()}
    found, pieces = msgspec.json.schema_components(names.values())
    return json.dumps({"properties": dict(zip(names, found, strict=True)), "$defs": pieces}, indent=1) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
