"""The shapes of the page's panels for its scripts: TypeScript's `types.d.ts`, and a JSON Schema.

    python -m tools.write_page_types

Both are made from the records in `dragonscale.web.panel_records`; `tsc --noEmit` then checks the scripts against them.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.web.panel_forms import SheetPanel
from dragonscale.web.panel_records import SHAPES
from dragonscale.web.view_names import COMMANDS

ROOT = Path(__file__).parents[1]
TYPES = ROOT / "src" / "dragonscale" / "web" / "types.d.ts"
SCHEMA = ROOT / "docs" / "schemas" / "page-panels.json"
_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def schema() -> dict[str, Any]:
    """Every panel's record under VIEW.PANEL, the `sheet` that commands have too, and the pieces of them."""
    names = {f"{view}.{panel}": shape for view, panels in SHAPES.items() for panel, shape in panels.items()}
    names["sheet"] = SheetPanel
    found, pieces = msgspec.json.schema_components(names.values())
    return {"properties": dict(zip(names, found, strict=True)), "$defs": pieces}


def type_of(one: dict[str, Any]) -> str:
    """A schema as a type.

    >>> type_of({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}})
    'Array<string | null>'
    """
    if "$ref" in one:
        return one["$ref"].rpartition("/")[2]
    if "anyOf" in one:
        return " | ".join(dict.fromkeys(map(type_of, one["anyOf"])))
    match one.get("type"):
        case "array":
            return f"Array<{type_of(one.get('items') or {})}>"
        case "object":
            return f"Record<string, {type_of(one.get('additionalProperties') or {})}>"
        case plain:
            return _PLAIN.get(str(plain), "any")


def text() -> str:
    """The file of types."""
    whole = schema()
    lines = [
        "// Written by `python -m tools.write_page_types` from dragonscale.web.panel_records: change it there.",
        "",
    ]
    for name, piece in sorted(whole["$defs"].items()):
        needed = piece.get("required", [])
        lines.append(f"export interface {name} {{")
        lines += [f"  {key}{'' if key in needed else '?'}: {type_of(one)};" for key, one in piece["properties"].items()]
        lines.append("}")
    lines += ["", "/** Panels by view; `record` is what `--json` prints. */", "export interface Views {"]
    for view, panels in SHAPES.items():
        every = [f"{panel}?: {shape.__name__}" for panel, shape in panels.items()]
        every += [f"sheet?: {SheetPanel.__name__}", "record?: any"] if view in COMMANDS else []
        lines.append(f"  {view}: {{ {'; '.join(every)} }};")
    lines += ["}", "", "export type Panels<V> = V extends keyof Views ? Views[V] : any;", ""]
    return "\n".join(lines)


def schema_text() -> str:
    """The schema's file."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    TYPES.write_text(text(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
