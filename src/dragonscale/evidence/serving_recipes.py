"""How a published serving run was launched: the first recipe of `serving_recipes.toml` that fits a
row."""

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources

import msgspec


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How runs were launched; the file says what each setting means. `match` lists what rows must
    say for it to fit. `inferred` gives the reason for every setting that was read off the results
    and is not in a launch script."""

    why: str
    match: dict[str, list[str | int]] = {}
    inferred: dict[str, str] = {}
    kv: str = "bf16"
    budget: int | str = 8192
    memory: float = 0.9
    sequences: int = 0
    poll: tuple[int, int] = (1, 1)
    wait: int = 0
    wait_ratio: float = 0.9
    drafts: tuple[int, int] = (0, 0)
    prompts: int = 10
    spread: float = 0.8
    reuse: float = 0.0
    interval: int = 1
    captured: int = 0
    piecewise: dict[str, int] = {}
    dealt: dict[str, int] = {}
    attention_data: dict[str, int] = {}
    experts: dict[str, str] = {}
    balance: int = 0
    batching: int = 0
    acceptance: float = 0.0
    cold: bool = False
    unclear: str = ""

    def begun(self, least: Mapping[str, int], lengths: str, clients: int) -> bool:
        """Whether a setting that a script makes by the number of clients is made; `any` stands for all lengths."""
        return clients >= least.get(lengths, least.get("any", clients + 1))


@functools.cache
def recipes() -> dict[str, Recipe]:
    """All recipes by name, in the order in which they are tried; the last has the engine's
    defaults."""
    text = (resources.files("dragonscale.evidence") / "serving_recipes.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text)["recipe"], dict[str, Recipe])
    return found | {"defaults": Recipe("no launch script known")}


def recipe_of(said: Mapping[str, str | int], date: str) -> str:
    """The name of the recipe of a run about which a row says these things; `defaults` where none is
    known."""
    dated = f"{said['version']}@{date}"

    def fits(match: Mapping[str, list[str | int]]) -> bool:
        asked = ((said[name], allowed, name) for name, allowed in match.items())
        return all(own in allowed or (name == "version" and dated in allowed) for own, allowed, name in asked)

    return next(name for name, recipe in recipes().items() if fits(recipe.match))
