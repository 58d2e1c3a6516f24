"""Runs to write down that nobody has judged: a plan with its model and chips, and no expectation."""

from dataclasses import replace

from dragonscale.exports.runs import Run, ServingRun, TrainingRun
from dragonscale.exports.software import software
from dragonscale.exports.target import Target
from dragonscale.exports.written import WrittenFiles
from dragonscale.models import load_model
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.engine.launch import engine_on
from dragonscale.serving.engine.plan_file import SavedTraffic, read_serving_plan
from dragonscale.training.plan.plan_file import TrainingFile, parse_plan


def serving_run(engine: str, model: str, on: str, plan: str, replicas: int = 1, pool: bool = False) -> ServingRun:
    """A run of an engine, `pool` behind one like it that prefills."""
    piece, loaded, said = parse_slice(on), load_model(model), read_serving_plan(plan)
    traffic = SavedTraffic(1024, 256)
    file = replace(said, model=model, slice=on, engine=engine, batch=16, replicas=replicas, traffic=traffic)
    launch = engine_on(engine, piece.chip, loaded, None, piece.chips, said.plan)
    run = ServingRun(file, loaded, model_fields(model), piece, launch, command=f"dscale export {model}")
    return replace(run, role="decode", prefill=replace(run, role="prefill")) if pool else run


def training_run(stack: str, model: str, plan: str, on: str = "h100:16") -> TrainingRun:
    """A run of a trainer."""
    file = TrainingFile(parse_plan(plan), model=model, slice=on, stack=stack, batch=64, seq=4096, tokens="1B")
    return TrainingRun(file, load_model(model), model_fields(model), parse_slice(on), command=f"of {model}")


def written(target: Target, run: Run) -> tuple[Run, WrittenFiles]:
    """What a target writes for a run, its notes in the headers."""
    made = software(target).write(run)
    run = replace(run, notes=(*made.notes, *made.routing))
    return run, software(target).write(run)
