"""Serving plans as TOML files: what `dscale serve --save` writes, and `dscale serve --plan` and `dscale simulate` read.

    model = "llama3-70b"
    slice = "h100:4"          # of one replica
    engine = "vllm"
    batch = 64                # sequences that a replica decodes at once, at most
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

Everything but the plan may be left out; a file without a `[plan]` table is a table of settings itself. `[launch]` has
limits of the engine that were given, `[speculation]` what is drafted, `[prefill]` a pool of replicas that prefill
alone.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.files import write_file
from dragonscale.plan.plan_file import check_plan_path, is_plan_path, plan_text, settings_table, words_in
from dragonscale.references import found, kept
from dragonscale.serving.engine.plan import ServingPlan, given_settings, parse_serving_plan, read_setting
from dragonscale.tables import Strict, checked, read_table

WORDS = ("model", "slice", "engine")
COUNTS = ("batch", "replicas")


class SavedTraffic(Strict, frozen=True):
    """What requests are like and how they come; 0 and empty say nothing. `ramp` is the time over which clients begin
    where there is no rate: that of one request, so that they are spread as in a steady state. `longest` is the longest
    request where lengths vary.

    Traffic of a use case names it, with its `users` where they say the rate, what a turn adds where that is not the
    use case's own (`turn_prompt`, `turn_output`), and the `router` that the fleet was sized with; `prompt`, `output`,
    `cached` and `rate` are then its means."""

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
    """As flags have them: `500ms` on average, `p95:1s`."""

    ttft: str = ""
    tpot: str = ""
    itl: str = ""
    e2e: str = ""


class SavedLaunch(Strict, frozen=True):
    max_seqs: int | None = None
    token_budget: int | None = None
    memory_fraction: float | None = None


class SavedDrafts(Strict, frozen=True):
    drafts: int = 0
    acceptance: str = ""
    draft: str = ""


class SavedPrefill(Strict, frozen=True):
    """Replicas that prefill for the others; `engine` where it is another form of the engine than the others run."""

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
ENTRIES = (*WORDS, *COUNTS, "plan", *TABLES)
SERVING_ONLY = frozenset(("engine", "replicas", *TABLES))
"""Entries that only a serving plan has."""


@dataclass(frozen=True)
class SavedPlan:
    """A plan and what it was made for; empty words and counts of 0 say nothing. `whole` says that the plan names its
    `tensor` degree; one that does not takes the whole slice for it. `named` are the settings that were written.
    `served_length` is the longest request that another engine's launch line is for, prompt and output together (0: it
    does not say); plan files of ours have none."""

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
    """A plan from a file."""
    table, shown = read_table(Path(path), "Plan file"), shorten(path)
    if _trains(table):
        raise InputError(
            f"{shown} is a training plan, which `dscale train --plan` reads; a serving plan is what "
            "`dscale serve … --save FILE` writes."
        )
    settings = settings_table(table, ENTRIES, shown)
    plan = ServingPlan(**{name: read_setting(name, value) for name, value in settings.items() if value != ""})
    words = words_in(table, WORDS, path)
    counts = {name: _count(table.get(name, 0), name, path) for name in COUNTS}
    own = {name: checked(table.get(name, {}), one, f"[{name}] of the plan file", path) for name, one in TABLES.items()}
    own["speculation"] = msgspec.structs.replace(own["speculation"], draft=found(own["speculation"].draft, path))
    own["prefill"] = msgspec.structs.replace(own["prefill"], slice=found(own["prefill"].slice, path))
    return SavedPlan(plan, **words, **counts, **own, whole="tensor" in settings, named=frozenset(settings))


def _trains(table: dict[str, Any]) -> bool:
    """Whether a table is a training plan: with a batch and a sequence to train on, or sharded as only training is."""
    settings = table.get("plan", {})
    return "run" in table or (isinstance(settings, dict) and not {"fsdp", "microbatch", "zero"}.isdisjoint(settings))


def _count(value: Any, name: str, path: str) -> int:
    what = {"batch": "sequences"}.get(name, name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**6:
        raise InputError(f"In the plan file {shorten(path)} {name} is {shorten(value)}; write a number of {what}.")
    return value


def is_plan_file(text: str) -> bool:
    """Whether a path is that of a serving plan: a TOML file with a `[plan]` table (a model's own file has none)."""
    path = Path(text)
    return path.suffix == ".toml" and path.is_file() and "plan" in read_table(path, "File")


def read_serving_plan(text: str) -> SavedPlan:
    """A plan as it is written on a command line: settings, or the file that holds them."""
    if is_plan_path(text):
        return load_serving_plan(text.strip())
    named = given_settings(text)
    return SavedPlan(parse_serving_plan(text), whole="tensor" in named, named=named)


def save_serving_plan(saved: SavedPlan, path: str) -> None:
    """Write a plan with what it is for."""
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
    """The TOML of a plan with what it is for."""
    entries = {name: getattr(saved, name) for name in (*WORDS, *COUNTS)}
    tables = {"plan": {name: value for name, value in vars(saved.plan).items() if value != ""}}
    for name in TABLES:
        own = {key: value for key, value in msgspec.to_builtins(getattr(saved, name)).items() if value}
        tables |= {name: own} if own else {}
    return plan_text(entries, tables)
