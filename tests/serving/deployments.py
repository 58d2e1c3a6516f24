"""Deployments drawn at random: any chip, its slices, a model of every kind, its formats, any way to split it."""

from dataclasses import replace
from functools import cache

import numpy
from hypothesis import assume
from hypothesis import strategies as st

from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Slice, chip_names, load_chip
from dragonscale.serving.engine.checkpoint import legal_formats
from dragonscale.serving.engine.engine import engines
from dragonscale.serving.engine.plan import SPREADS, ServingPlan
from dragonscale.serving.iteration.deployment import Deployment, deploy
from dragonscale.serving.space.space import slices_of, splits

MODELS = (
    "llama3-8b",
    "llama3-70b",
    "gemma3-27b",
    "gpt-oss-120b",
    "mixtral-8x7b",
    "deepseek-v3",
    "deepseek-v3.2",
    "qwen3-next-80b-a3b",
    "jamba-52b",
    "falcon-7b",
)


@cache
def model_of(name: str) -> Transformer:
    return load_model(name)


@cache
def pieces_of(chip: str) -> tuple[Slice, ...]:
    return tuple(slices_of(load_chip(chip), 32))


@cache
def plans_of(model: str, chip: str, place: int) -> tuple[ServingPlan, ...]:
    return tuple(splits(model_of(model), pieces_of(chip)[place])) or (ServingPlan(),)


Case = tuple[str, str, str, str]
"""Model, slice, plan and engine, as `deploy` takes them."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    chip = draw(st.sampled_from(chip_names()))
    model = draw(st.sampled_from(MODELS))
    place = draw(st.integers(0, len(pieces_of(chip)) - 1))
    formats = draw(st.sampled_from(legal_formats("generic", load_chip(chip), model_of(model))))
    plan = replace(
        draw(st.sampled_from(plans_of(model, chip, place))),
        weights=formats.weights,
        compute=formats.compute,
        kv=formats.kv,
        attention=formats.attention,
        spread=draw(st.sampled_from(SPREADS)),
    )
    text = f"tensor={plan.tensor}," + str(plan).replace(f"tensor={plan.tensor}", "").strip(",")
    return model, str(pieces_of(chip)[place]), text.strip(","), draw(st.sampled_from(sorted(engines())))


def deployed(case: Case) -> Deployment:
    """The deployment of a case; one that cannot be wired is not looked at."""
    found = deploy(model_of(case[0]), *case[1:])
    assume(bool(numpy.all(found.wires.possible)))
    return found
