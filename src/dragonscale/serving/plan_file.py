"""Serving plans as TOML files: what `dscale serve --save` writes, and `dscale serve --plan` and `dscale simulate` read.

    model = "llama3-70b"
    slice = "h100:8"
    engine = "vllm"
    batch = 64

    [plan]
    tensor = 8
    weights = "fp8"

Everything but the plan may be left out; a file without a `[plan]` table is a table of settings itself.
"""

from dataclasses import dataclass, fields
from pathlib import Path

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.serving.plan import ServingPlan, parse_serving_plan, read_setting
from dragonscale.tables import read_table

WORDS = ("model", "slice", "engine")


@dataclass(frozen=True)
class SavedPlan:
    """A plan and what it was made for; empty words and a batch of 0 say nothing. `whole` says that the plan names its
    `tensor` ways; one that does not takes the whole slice for them. `named` are the settings that were written."""

    plan: ServingPlan
    model: str = ""
    slice: str = ""
    engine: str = ""
    batch: int = 0
    whole: bool = True
    named: frozenset[str] = frozenset()


def load_serving_plan(path: str) -> SavedPlan:
    """A plan from a file."""
    table = read_table(Path(path), "Plan file")
    settings = table.get("plan")
    if settings is None:
        settings = {name: value for name, value in table.items() if name not in (*WORDS, "batch")}
    elif not isinstance(settings, dict):
        raise InputError(f"In the plan file {shorten(path)} 'plan' is not a table of settings.")
    else:
        for name in table:
            if name not in (*WORDS, "batch", "plan"):
                raise unknown(f"entry of the plan file {shorten(path)} called", name, (*WORDS, "batch", "plan"))
    plan = ServingPlan(**{name: read_setting(name, value) for name, value in settings.items() if value != ""})
    words = {name: table.get(name, "") for name in WORDS}
    for name, value in words.items():
        if not isinstance(value, str):
            raise InputError(f"In the plan file {shorten(path)} {name} is {shorten(value)}; write it as text.")
    batch = table.get("batch", 0)
    if isinstance(batch, bool) or not isinstance(batch, int) or not 0 <= batch <= 10**6:
        raise InputError(f"In the plan file {shorten(path)} batch is {shorten(batch)}; write a number of sequences.")
    return SavedPlan(plan, **words, batch=batch, whole="tensor" in settings, named=frozenset(settings))


def is_plan_file(text: str) -> bool:
    """Whether a path is that of a serving plan: a TOML file with a `[plan]` table (a model's own file has none)."""
    path = Path(text)
    return path.suffix == ".toml" and path.is_file() and "plan" in read_table(path, "File")


def read_serving_plan(text: str) -> SavedPlan:
    """A plan as it is written on a command line: settings, or the file that holds them."""
    if text.strip().endswith(".toml"):
        return load_serving_plan(text.strip())
    names = [part.partition("=")[0].strip() for part in text.split(",")]
    return SavedPlan(parse_serving_plan(text), whole="tensor" in names, named=frozenset(names))


def save_serving_plan(saved: SavedPlan, path: str) -> None:
    """Write a plan with what it is for."""
    lines = [f'{name} = "{getattr(saved, name)}"' for name in WORDS if getattr(saved, name)]
    lines += [f"batch = {saved.batch}"] if saved.batch else []
    lines += ["", "[plan]"]
    for field in fields(saved.plan):
        value = getattr(saved.plan, field.name)
        if value != "":
            lines.append(f'{field.name} = "{value}"' if isinstance(value, str) else f"{field.name} = {value}")
    try:
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"The plan cannot be written to {shorten(path)}: {error.strerror}.") from None
