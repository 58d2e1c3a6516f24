"""Measured serving runs judged by an engine as it is shipped: its own limits and memory share for the chip, not those
of the run's launch script. What stays is the load (clients, lengths), the plan with its formats, and whether tokens
were drafted. With `auto` this is what a user gets who names no engine."""

from dataclasses import replace

from dragonscale.evidence.serving_recipes import Recipe
from dragonscale.evidence.serving_rows import ServedRun
from dragonscale.physics.hardware import load_chip
from dragonscale.serving.auto import AUTO
from dragonscale.serving.engine import Engine, load_engine, split_settings
from dragonscale.serving.launch import engine_on

LOAD = ("why", "inferred", "kv", "drafts", "acceptance", "prompts", "spread", "reuse", "cold")
"""What of a recipe is the load, or cannot be told from a plan."""
EVERY_TOKEN = 2**40
"""More tokens than any iteration has."""


def known_engine(name: str) -> None:
    """Refuse a name that no engine has."""
    if split_settings(name)[0] != AUTO:
        load_engine(name)


def engine_for(name: str, run: ServedRun) -> Engine:
    """The engine of that name with its settings for the run's chip; `auto`: what people run for the
    model on the chip."""
    return engine_on(name, load_chip(run.row.chip), run.model, chips=run.plan.chips, plan=run.plan)


def as_shipped(run: ServedRun, name: str) -> ServedRun:
    """The run with an engine as it is shipped."""
    engine = engine_for(name, run)
    limits = engine.scheduling
    recipe = Recipe(
        **{name: getattr(run.recipe, name) for name in LOAD},
        budget=limits.max_tokens,
        memory=engine.memory.share,
        sequences=limits.max_sequences * run.plan.data,
        poll=(limits.poll, limits.poll),
        interval=engine.host.stream_interval,
        captured=EVERY_TOKEN if engine.host.prompt_graphs else 0,
    )
    return replace(run, engine=engine, recipe=recipe)
