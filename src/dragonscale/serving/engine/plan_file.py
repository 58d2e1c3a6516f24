"""Serving plans as TOML files: written by `dscale serve --save`, read by `dscale serve --plan` and `dscale simulate`.

    model = "llama3-70b"
    slice = "h100:4"          # of one replica
    engine = "vllm"
    batch = 64                # most sequences that a replica decodes at once
    replicas = 2

    [plan]
    tensor = 4
    weights = "fp8"

    [traffic]
    prompt = 2048
    output = 512
    rate = "20/s"

    [targets]
    ttft = "500ms"

Everything but the plan is optional; a file without a `[plan]` table is a table of settings itself. `[launch]` has the
engine's limits that were set, `[speculation]` what is drafted, `[prefill]` a pool of replicas that only prefill.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.files import write_file
from dragonscale.plan.plan_file import check_plan_path, is_plan_path, plan_text, settings_table, texts_in
from dragonscale.references import found, kept
from dragonscale.serving.engine.plan import ServingPlan, given_settings, parse_serving_plan, read_setting
from dragonscale.tables import Strict, checked, read_table

TEXT_ENTRIES = ("model", "slice", "engine")
COUNT_ENTRIES = ("batch", "replicas")


class SavedTraffic(Strict, frozen=True):
    """What requests are like and how they arrive; 0 and empty mean unset.

    `ramp` is the time over which clients start if there is no rate: that of one request, which spreads them as in a
    steady state. `longest` is the longest request if lengths vary.

    Traffic of a use case has its name, its `users` if they determine the rate, what a turn adds if that differs from
    the use case's own (`turn_prompt`, `turn_output`), and the `router` that the fleet was sized with. `prompt`,
    `output`, `cached` and `rate` are then its means.
    """

    prompt: int = 0
    output: int = 0
    cached: float = 0.0
    rate: str = ""
    ramp: str = ""
    longest: int = 0
    use_case: str = ""
    users: int = 0
    turn_prompt: str = ""
    turn_output: str = ""
    router: str = ""


class SavedTargets(Strict, frozen=True):
    """Latency targets as flags spell them: `500ms` on average, `p95:1s`."""

    ttft: str = ""
    tpot: str = ""
    itl: str = ""
    e2e: str = ""


class SavedLaunch(Strict, frozen=True):
    """Limits of the engine that the launch sets; see `LaunchLimits`."""

    max_seqs: int | None = None
    token_budget: int | None = None
    memory_fraction: float | None = None


class SavedDrafts(Strict, frozen=True):
    """Speculative decoding: how many tokens are drafted, how often they are right, and the draft model."""

    drafts: int = 0
    acceptance: str = ""
    draft: str = ""


class SavedPrefill(Strict, frozen=True):
    """Replicas that prefill for the others; `engine` if it is another form of the decoding replicas' engine."""

    slice: str = ""
    plan: str = ""
    replicas: int = 0
    engine: str = ""


TABLES: dict[str, type[Any]] = {
    "traffic": SavedTraffic,
    "targets": SavedTargets,
    "launch": SavedLaunch,
    "speculation": SavedDrafts,
    "prefill": SavedPrefill,
}
ENTRIES = (*TEXT_ENTRIES, *COUNT_ENTRIES, "plan", *TABLES)
SERVING_ONLY = frozenset(("engine", "replicas", *TABLES))
"""Entries that a training plan never has."""


@dataclass(frozen=True)
class SavedPlan:
    """A plan and what it was made for; empty text and counts of 0 mean unset.

    `whole` is whether the plan names its `tensor` degree; one that does not uses the whole slice. `named` are the
    settings that were written. `served_length` is the longest request, prompt and output together, of an imported
    launch line (0: not stated); our own plan files have none.
    """

    plan: ServingPlan
    model: str = ""
    slice: str = ""
    engine: str = ""
    batch: int = 0
    whole: bool = True
    named: frozenset[str] = frozenset()
    replicas: int = 0
    traffic: SavedTraffic = field(default_factory=SavedTraffic)
    targets: SavedTargets = field(default_factory=SavedTargets)
    launch: SavedLaunch = field(default_factory=SavedLaunch)
    speculation: SavedDrafts = field(default_factory=SavedDrafts)
    prefill: SavedPrefill = field(default_factory=SavedPrefill)
    served_length: int = 0


def load_serving_plan(path: str) -> SavedPlan:
    """Read a plan file."""
    table, shown = read_table(Path(path), "Plan file"), shorten(path)
    if _trains(table):
        raise InputError(
            f"{shown} is a training plan, which `dscale train --plan` reads; a serving plan is what "
            "`dscale serve … --save FILE` writes."
        )
    settings = settings_table(table, ENTRIES, shown)
    plan = ServingPlan(**{name: read_setting(name, value) for name, value in settings.items() if value != ""})
    entries = texts_in(table, TEXT_ENTRIES, path)
    counts = {name: _count(table.get(name, 0), name, path) for name in COUNT_ENTRIES}
    tables: dict[str, Any] = {}
    for name, kind in TABLES.items():
        tables[name] = checked(table.get(name, {}), kind, f"[{name}] of the plan file", path)
    # files that the plan refers to are relative to it
    drafts, pool = tables["speculation"], tables["prefill"]
    tables["speculation"] = msgspec.structs.replace(drafts, draft=found(drafts.draft, path))
    tables["prefill"] = msgspec.structs.replace(pool, slice=found(pool.slice, path))
    return SavedPlan(plan, **entries, **counts, **tables, whole="tensor" in settings, named=frozenset(settings))


def _trains(table: dict[str, Any]) -> bool:
    """Whether a table is a training plan: it has a run to train, or degrees that only training has."""
    settings = table.get("plan", {})
    return "run" in table or (isinstance(settings, dict) and not {"fsdp", "microbatch", "zero"}.isdisjoint(settings))


def _count(value: Any, name: str, path: str) -> int:
    what = {"batch": "sequences"}.get(name, name)
    # a TOML boolean is an int to Python
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**6:
        raise InputError(f"In the plan file {shorten(path)} {name} is {shorten(value)}; write a number of {what}.")
    return value


def is_plan_file(text: str) -> bool:
    """Whether text is the path of a plan file: a TOML file with a `[plan]` table (a model's own file has none)."""
    path = Path(text)
    return path.suffix == ".toml" and path.is_file() and "plan" in read_table(path, "File")


def read_serving_plan(text: str) -> SavedPlan:
    """A plan from the command line: settings, or the path of a plan file."""
    if is_plan_path(text):
        return load_serving_plan(text.strip())
    named = given_settings(text)
    return SavedPlan(parse_serving_plan(text), whole="tensor" in named, named=named)


def save_serving_plan(saved: SavedPlan, path: str) -> None:
    """Write a plan file."""
    check_plan_path(path)
    drafts, pool = saved.speculation, saved.prefill
    saved = replace(
        saved,
        model=kept(saved.model, path),
        slice=kept(saved.slice, path),
        speculation=msgspec.structs.replace(drafts, draft=kept(drafts.draft, path)),
        prefill=msgspec.structs.replace(pool, slice=kept(pool.slice, path)),
    )
    write_file(path, serving_plan_text(saved), "The plan")


def serving_plan_text(saved: SavedPlan) -> str:
    """The TOML text of a plan file, without what is unset."""
    entries = {name: getattr(saved, name) for name in (*TEXT_ENTRIES, *COUNT_ENTRIES)}
    tables = {"plan": {name: value for name, value in vars(saved.plan).items() if value != ""}}
    for name in TABLES:
        table = msgspec.to_builtins(getattr(saved, name))
        if settings := {key: value for key, value in table.items() if value}:
            tables[name] = settings
    return plan_text(entries, tables)
