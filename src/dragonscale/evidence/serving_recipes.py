"""How a published serving run was launched: the first recipe of `serving_recipes.toml` that fits a row."""

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources

import msgspec


class RecipeMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows a recipe fits; empty: all. `fewer` is a number of GPUs that the tensor parallelism stays below."""

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


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How runs were launched; the file says what each setting means. `inferred` gives the reason for every setting that was
    read off the results and is not in a launch script."""

    why: str
    match: RecipeMatch | None = None
    inferred: dict[str, str] = {}
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
def recipes() -> dict[str, Recipe]:
    """All recipes by name, in the order in which they are tried; the last has the engine's defaults."""
    text = (resources.files("dragonscale.evidence") / "serving_recipes.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text)["recipe"], dict[str, Recipe])
    return found | {"defaults": Recipe("no launch script known")}


def matches(asked: RecipeMatch, launch: Launch) -> bool:
    """Whether a run was launched so."""
    dated = f"{launch.version}@{launch.date}"
    named = (
        (asked.models, launch.model),
        (asked.published, launch.published),
        (asked.chips, launch.chip),
        (asked.precisions, launch.precision),
    )
    sizes = ("input", "output", "tensor", "expert")
    return (
        (asked.source, asked.engine) == (launch.source, launch.engine)
        and all(not wanted or found in wanted for wanted, found in named)
        and (not asked.versions or not {launch.version, dated}.isdisjoint(asked.versions))
        and all(getattr(asked, name) in (0, getattr(launch, name)) for name in sizes)
        and (not asked.fewer or launch.tensor < asked.fewer)
    )


def recipe_of(launch: Launch) -> str:
    """The name of a run's recipe; `defaults` where none is known."""
    return next(name for name, recipe in recipes().items() if not recipe.match or matches(recipe.match, launch))
