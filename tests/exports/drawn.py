"""Legal plans drawn at random: any preset, any chip of the catalogue, any settings that a target's stack or engine
takes.

A plan is drawn, written down by the target and read back without being judged, so that thousands are a matter of
seconds.
"""

import functools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from dragonscale.errors import Infeasible
from dragonscale.exports.imported import Given, Source
from dragonscale.exports.reading import recognised
from dragonscale.exports.runs import ServingRun, TrainingRun
from dragonscale.exports.software import launcher, software
from dragonscale.exports.target import Target, target_named
from dragonscale.models import load_model, model_names
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.legality import caches, pairs, runs_on
from dragonscale.serving.engine.legality import rules as serving_rules
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedDrafts, SavedLaunch, SavedPlan, SavedTraffic
from dragonscale.serving.space.legal import refusal
from dragonscale.training.cost.evaluation import make_job
from dragonscale.training.plan.legality import WORDS, family, rules
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import TrainingFile
from dragonscale.training.plan.stages import chunk_sizes
from dragonscale.training.search.legal import illegal, matters, trains_in
from dragonscale.training.search.space import misfits

TRAINED_ON = (
    "h100:8",
    "h100:64",
    "h100:512",
    "h200:16",
    "b200:64",
    "gb200:72",
    "a100:32",
    "mi300x:16",
    "v5p:4x4x8",
    "v6e:8x8",
    "v5e:8x16",
    "tpu7x:4x4x4",
)
SERVED_ON = (
    "h100:1",
    "h100:4",
    "h100:8",
    "h200:8",
    "h100:16",
    "a100:8",
    "b200:8",
    "gb200:16",
    "mi300x:8",
    "l40s:4",
    "v6e:2x2",
    "v6e:4x4",
    "v5e:2x4",
    "tpu7x:2x2x1",
)


BUILT = ("llama3.1-8b", "llama3.2-3b", "qwen2.5-7b", "gemma2-9b", "mistral-7b")


@functools.cache
def _model(name: str) -> Any:
    return load_model(name)


@functools.cache
def _piece(text: str) -> Slice:
    return parse_slice(text)


def _factors(draw: random.Random, chips: int, ways: int) -> list[int]:
    """Numbers whose product is the number of chips."""
    found = [1] * ways
    for prime in _primes(chips):
        found[draw.randrange(ways)] *= prime
    return found


def _primes(number: int) -> Iterator[int]:
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1


def training_runs(target: Target, seed: int, tries: int) -> Iterator[TrainingRun]:
    """Legal training plans of a target."""
    draw = random.Random(seed)
    stack = target.runs[0]
    for _ in range(tries):
        name, place = draw.choice(_names()), draw.choice(TRAINED_ON)
        place = "h100:8" if target.name == "swift" else place  # it is written for one host
        piece, model = _piece(place), _model(name)
        pipe, data, fsdp, expert, context, tensor = _factors(draw, piece.chips, 6)
        if target.tunes:  # which have no other ranks
            pipe, expert, tensor, (data, fsdp, context) = 1, 1, 1, _factors(draw, piece.chips, 3)
        if target.name == "torchtune":  # FSDP over all ranks, and models that it has builders for
            name, (data, fsdp, context) = draw.choice(BUILT), (1, piece.chips, 1)
            model = _model(name)
        row = rules(stack, family(piece.chip), pipe > 1)
        formats = trains_in(piece.chip, row)
        if not formats:
            continue
        words = {word: draw.choice(getattr(row, word)) for word in WORDS}
        words["remat"] = {"modules": "none", "block:N": "block:3"}.get(words["remat"], words["remat"])
        words["offload"] = words["offload"].replace(":N", ":3")
        words["layout"] = "even" if words["layout"] == "by stage" else words["layout"]
        virtual = draw.choice((2, 4)) if words["schedule"] == "interleaved" and pipe > 1 else 1
        plan = Plan(
            data,
            fsdp,
            tensor,
            context,
            expert,
            pipe,
            draw.choice((1, 2)),
            virtual,
            dtype=draw.choice(formats),
            **words,
        )
        batch, seq = (
            plan.replicas * plan.microbatch * draw.choice((1, 2, 4, 8)) * pipe,
            draw.choice((4096, 8192, 32768)),
        )
        job = make_job(model, piece, batch, seq, stack)
        if illegal(job, plan) or misfits(job, plan):
            continue
        file = TrainingFile(plan, model=name, slice=place, stack=stack, tokens="1T", batch=batch, seq=seq)
        yield TrainingRun(file, model, model_fields(name), piece)


def serving_runs(target: Target, seed: int, tries: int) -> Iterator[ServingRun]:
    """Legal serving plans of a target."""
    draw = random.Random(seed)
    for _ in range(tries):
        engine, name, place = draw.choice(target.runs[:2]), draw.choice(_names()), draw.choice(SERVED_ON)
        piece, model = _piece(place), _model(name)
        if not runs_on(engine, piece.chip):
            continue
        row, mixed = serving_rules(engine), any("e" in section.dims for section in model.program().sections)
        pipe, data, tensor = _factors(draw, piece.chips, 3)
        pipe, tensor = (pipe, tensor) if row.pipe else (1, tensor * pipe)
        data, tensor = (data, tensor) if mixed else (1, tensor * data)
        weights, compute = draw.choice(pairs(engine, piece.chip))
        expert = draw.choice((1, data * tensor, tensor)) if mixed else 1
        plan = ServingPlan(
            tensor,
            data,
            expert,
            pipe=pipe,
            spread=draw.choice(row.spread),
            weights=weights,
            compute=compute,
            kv=draw.choice(caches(engine, piece.chip)),
        )
        if refusal(engine, piece, model, plan, (1024, 256)):
            continue
        launch = draw.choice(
            (SavedLaunch(), SavedLaunch(token_budget=4096), SavedLaunch(max_seqs=96, memory_fraction=0.8))
        )
        drafts = draw.choice((SavedDrafts(), SavedDrafts(3, "0.7")))
        file = SavedPlan(
            plan,
            name,
            place,
            engine,
            draw.choice((16, 64, 256)),
            replicas=draw.choice((1, 3)),
            traffic=SavedTraffic(1024, 256),
            launch=launch,
            speculation=drafts,
        )
        limits = LaunchLimits(launch.max_seqs, launch.token_budget, launch.memory_fraction)
        launched = engine_on(engine, piece.chip, model, limits, piece.chips, plan)
        yield ServingRun(file, model, model_fields(name), piece, launched)


@functools.cache
def _names() -> tuple[str, ...]:
    return tuple(model_names())


def read_back(target: Target, run: Any, header: bool = True) -> tuple[Any, Any]:
    """What is read of a run that was written down, and what was written; None where the target refuses it."""
    try:
        made = software(target).write(run)
    except Infeasible:
        return None, None
    files = (
        {**launcher(target_named("shell")).launch(run, target, made), **made.files}
        if made.programs
        else dict(made.files)
    )
    if not header:
        files = {
            name: "\n".join(line for line in text.split("\n") if "dscale: {" not in line)
            for name, text in files.items()
        }
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as place:
        for name, text in files.items():
            Path(place, name).write_text(text, encoding="utf-8")
        source = Source.at(Path(place))
        found = recognised(source)
        assert found is target, (found, next(iter(files.values()))[:400])
        return software(target).read(source, Given() if header else Given(slice=str(run.slice))), made


def same_training(back: Plan, plan: Plan, experts: bool, layers: int = 0) -> list[str]:
    """Settings in which two plans differ and that make a difference; layouts that deal the layers
    alike are the same."""
    chunks = plan.pipe * plan.virtual
    if layers and chunks > 1 and chunk_sizes(layers, chunks, back.layout) == chunk_sizes(layers, chunks, plan.layout):
        back = replace(back, layout=plan.layout)
    names = [name for name in Plan.__dataclass_fields__ if getattr(back, name) != getattr(plan, name)]
    merged = (
        ("data", "fsdp", "zero") if {"data", "fsdp", "zero"} & set(names) and _replicas(back) == _replicas(plan) else ()
    )
    return [name for name in names if name not in merged and (name not in WORDS or matters(plan, name, experts))]


def _replicas(plan: Plan) -> Any:
    """Replicas that shard nothing are replicas, whichever axis names them."""
    sharded = plan.zero > 0 and plan.fsdp > 1
    return (
        (plan.data, plan.fsdp, plan.zero)
        if sharded
        else (plan.data * plan.fsdp, plan.zero if plan.expert * plan.context > 1 else 0)
    )


def same_serving(back: SavedPlan, file: SavedPlan) -> list[str]:
    """Entries in which two serving plans differ."""
    names = [
        f"plan.{name}"
        for name in ServingPlan.__dataclass_fields__
        if getattr(back.plan, name) != getattr(file.plan, name)
    ]
    if "plan.spread" in names and file.plan.tensor == 1:
        names.remove("plan.spread")
    for name in ("model", "slice", "engine", "batch", "replicas"):
        names += [name] if getattr(back, name) != getattr(file, name) else []
    for name in ("traffic", "launch", "speculation", "prefill"):
        mine, theirs = (msgspec.to_builtins(getattr(one, name)) for one in (file, back))
        names += [name] if mine != theirs else []
    return names
