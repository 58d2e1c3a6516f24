"""The tables of docs/calc.md on the site: facts of chips, slices and models, and every function with its arguments,
unit and meaning.
"""

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from dragonscale.course import closed_forms
from dragonscale.course.calculator import functions
from dragonscale.course.calculator.arguments import CALLED, taken_unit
from dragonscale.course.calculator.measure import Measure
from dragonscale.course.calculator.names import TOTALS, chip_words, fact_of, load_name, model_sizes
from dragonscale.course.calculator.tables import UNITS_OF_FORMS
from dragonscale.course.closed_forms import NAMES
from dragonscale.models import Transformer
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import Chip, chip_names

PAGE = Path(__file__).parents[1] / "docs" / "calc.md"
EXAMPLES = ("v5e", "h100")
MODEL = "deepseek-v3"


def signature(name: str) -> str:
    """A function as it is called: `run_seconds(flops, chips, peak, mfu=1)`."""
    told: list[str] = []
    for key, one in inspect.signature(functions.function_of(name)).parameters.items():
        shown = CALLED.get(key, key)
        if key == "options":
            continue
        if one.default is one.empty:
            stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}
            told.append(stars.get(one.kind, "") + shown)
        else:
            default = one.default if not isinstance(one.default, tuple) else f"({', '.join(map(str, one.default))})"
            told.append(f"{shown}={'…' if default in (None, '') else default}")
    return f"{name}({', '.join(told)})"


def gives(name: str) -> str:
    """The unit of a result, or the parts that it has."""
    unit = functions.result_unit(name)
    told = inspect.signature(functions.function_of(name)).return_annotation
    parts = vars(told).get("__dataclass_fields__") or getattr(told, "_fields", ()) if inspect.isclass(told) else ()
    if parts:
        own = [key for key, value in vars(told).items() if isinstance(value, property)]
        own += [key for key in UNITS_OF_FORMS.methods.get(told.__name__, ()) if key not in own]
        return "parts: " + ", ".join(f".{part}" for part in (*parts, *own) if not part.startswith("_"))
    return unit or ("a word" if told is str else "a number")


def takes(name: str) -> str:
    """The parameters that have a unit."""
    units: dict[str, list[str]] = {}
    for key in inspect.signature(functions.function_of(name)).parameters:
        unit = taken_unit(name, key)
        if unit:
            units.setdefault(unit, []).append(key)
    return "; ".join(f"{', '.join(keys)} in {unit}" for unit, keys in units.items())


def row(name: str) -> str:
    """A function's line."""
    about = functions.meaning(name).replace("|", "\\|")
    unit = takes(name)
    return f"| `{signature(name)}` | {gives(name)} | {about}{f' Takes {unit}.' if unit else ''} |"


def forms() -> str:
    """Every closed form by what it is about."""
    lines: list[str] = []
    for home, names in NAMES.items():
        listed = [name for name in names if name not in UNITS_OF_FORMS.library_only]
        if listed:
            about = functions.first_sentence(inspect.getdoc(import_module(home)) or "").rstrip(".").split(":")[0]
            lines += [f"**{about}**", "", "| function | gives | what it is |", "|---|---|---|", *map(row, listed), ""]
    only = ", ".join(f"`{name}`" for name in sorted(UNITS_OF_FORMS.library_only) if name in closed_forms.__all__)
    return "\n".join([*lines, f"In Python only, because they do not answer with a number: {only}."])


def questions() -> str:
    """The functions of one line."""
    head = ["| function | gives | what it is |", "|---|---|---|"]
    return "\n".join([*head, *(row(name) for name in functions.ONE_LINE)])


def chips() -> str:
    """Words for facts of chips: the shortest for each path, with its value on two chips."""
    shortest: dict[str, str] = {}
    for name in chip_names():
        chip = load_name(name)
        assert isinstance(chip, Chip)
        for word, path in chip_words(chip).items():
            best = shortest.get(path)
            if best is None or ("." in word, len(word)) < ("." in best, len(best)):
                shortest[path] = word
    words = {word: path for path, word in shortest.items()} | dict.fromkeys(
        ("ici_axis", "ici", "pod_chips", "cores", "alus", "matrix_units", "intensity"), ""
    )
    lines = [f"| fact | {' | '.join(EXAMPLES)} | path |", "|---|---|---|---|"]
    for word, path in words.items():
        cells = [_value(lambda name=name, word=word: fact_of(name, word).value) for name in EXAMPLES]
        lines.append(f"| `.{word}` | {' | '.join(cells)} | {f'`{path}`' if path and path != word else ''} |")
    return "\n".join(lines)


def _value(found: Callable[[], Any]) -> str:
    try:
        value = found()
    except ValueError:
        return ""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def models() -> str:
    """Words for sizes of a model."""
    model = load_name(MODEL)
    assert isinstance(model, Transformer)
    words = [*model_sizes(model), "params", "active", "checkpoint", "bytes", "kv_bytes_per_token"]
    words += [f"{part}_params" for part in count_parameters(model).by_part]
    values = {word: fact_of(MODEL, word) for word in words}
    lines = [f"| size | {MODEL} | |", "|---|---|---|"]
    for word, found in values.items():
        assert isinstance(found.value, Measure)
        lines.append(f"| `.{word}` | {found.value} | {found.source} |")
    return "\n".join(lines)


def slices() -> str:
    """Words for slices."""
    counted = ", ".join(f"`.{word}`" for word in ("chips", "hosts", "vms", "cores", "pods", "X", "Y", "Z"))
    totals = ", ".join(f"`.{word}`" for word in TOTALS)
    return f"Counts: {counted}. Of all its chips together: {totals}; `.mtbf`: time between failures of a job on them."


TABLES: dict[str, Callable[[], str]] = {
    "chip-words": chips,
    "slice-words": slices,
    "model-words": models,
    "questions": questions,
    "closed-forms": forms,
}


def page(text: str) -> str:
    """The page with its tables as they are now."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        start = text.index(begin) + len(begin)
        text = text[:start] + "\n" + table() + "\n\n" + text[text.index(end) :]
    return text
