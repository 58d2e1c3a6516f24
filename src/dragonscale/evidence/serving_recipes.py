"""How a published serving run was launched: the first recipe of `serving_recipes.toml` that fits a row."""

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows it fits (empty: all) and how those runs were launched; see the file for what each entry means."""

    why: str
    source: str
    engine: str
    models: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    input: int = 0
    output: int = 0
    tensor: int = 0
    expert: int = 0
    fewer: int = 0
    kv: str = "bf16"
    budget: int | str = 8192
    memory: float = 0.9
    sequences: int = 0
    poll: tuple[int, int] = (1, 1)
    wait: int = 0
    drafts: tuple[int, int] = (0, 0)
    prompts: int = 10
    spread: float = 0.8
    reuse: float = 0.0
    interval: int = 1
    captured: int = 0
    balance: int = 0
    acceptance: float = 0.0
    cold: bool = False
    unclear: str = ""


@dataclass(frozen=True)
class Launch:
    """What a row says about its run, as recipes ask for it."""

    source: str
    engine: str
    version: str
    date: str
    model: str
    published: str
    precision: str
    chip: str
    input: int
    output: int
    tensor: int
    expert: int


@functools.cache
def recipes() -> tuple[Recipe, ...]:
    """All recipes, in the order in which they are tried."""
    text = (resources.files("dragonscale.evidence") / "serving_recipes.toml").read_text(encoding="utf-8")
    tables: list[dict[str, Any]] = tomllib.loads(text)["recipe"]
    return tuple(msgspec.convert(table, Recipe) for table in tables)


def fits(recipe: Recipe, launch: Launch) -> bool:
    """Whether a run was launched so."""
    names = (launch.version, f"{launch.version}@{launch.date}")
    asked = (
        (recipe.models, launch.model),
        (recipe.published, launch.published),
        (recipe.chips, launch.chip),
        (recipe.precisions, launch.precision),
    )
    sizes = ((recipe.input, launch.input), (recipe.output, launch.output), (recipe.tensor, launch.tensor))
    return (
        recipe.source == launch.source
        and recipe.engine == launch.engine
        and all(not wanted or found in wanted for wanted, found in asked)
        and (not recipe.versions or any(name in recipe.versions for name in names))
        and all(not wanted or wanted == found for wanted, found in (*sizes, (recipe.expert, launch.expert)))
        and (not recipe.fewer or launch.tensor < recipe.fewer)
    )


def recipe_of(launch: Launch) -> Recipe:
    """The recipe of a run; the engine's defaults where none is known."""
    found = next((recipe for recipe in recipes() if fits(recipe, launch)), None)
    return found or Recipe("no launch script known", launch.source, launch.engine)
