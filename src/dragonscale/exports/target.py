"""The targets: what plans can be written for and read from (`targets.toml`).

>>> target_named("megatron").title, target_named("megatron-lm").name
('Megatron-LM', 'megatron')
>>> [target.name for target in of_kind("launcher")]
['shell', 'slurm', 'kubernetes', 'skypilot']
"""

import tomllib
from collections.abc import Mapping
from importlib import resources

import msgspec

from dragonscale.errors import InputError, unknown
from dragonscale.exports.keys import KeyTable, load_keys
from dragonscale.tables import Strict


class Target(Strict, frozen=True):
    """One target. `kind` is `training`, `serving`, `launcher` or `load`; `software.py` has what writes and reads it."""

    name: str
    kind: str
    title: str
    runs: tuple[str, ...] = ()
    same: dict[str, str] = {}
    keys: str = ""
    also: tuple[str, ...] = ()
    tunes: bool = False
    """Whether it fine-tunes: adapters, preferences; others train every weight."""

    def key_table(self) -> KeyTable:
        return load_keys(self.keys or self.name)

    @property
    def version(self) -> str:
        """The released version whose names are written."""
        return self.key_table().version


def _read() -> dict[str, Target]:
    table = tomllib.loads((resources.files("dragonscale.exports") / "targets.toml").read_text(encoding="utf-8"))
    return {name: msgspec.convert({"name": name, **row}, Target) for name, row in table.items()}


TARGETS: Mapping[str, Target] = _read()
_SPELT = {spelling: target for target in TARGETS.values() for spelling in (target.name, *target.also)}


def target_named(name: str) -> Target:
    """A target by any of its names."""
    target = _SPELT.get(name.strip().lower().replace("_", "-"))
    if target is None and name.strip().lower() == "unsloth":
        text = "Unsloth is called from a script of your own, which is not written"
        raise InputError(
            f"{text}; take --to llamafactory --stack unsloth (use_unsloth: true), or trl for its settings."
        )
    if target is None:
        raise unknown("target of an export called", name, TARGETS)
    return target


def of_kind(kind: str) -> list[Target]:
    """The targets of a kind, in order."""
    return [target for target in TARGETS.values() if target.kind == kind]


def software_for(runs: str, kind: str) -> Target | None:
    """The target that runs a stack or an engine; None where there is none (our own program, engines of papers)."""
    return next((target for target in of_kind(kind) if runs in target.runs[:4]), None)
