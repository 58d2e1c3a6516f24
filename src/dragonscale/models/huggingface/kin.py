"""Which known family a new `model_type` is, by its fields.

New types are often known ones by another name. Every family's reader is tried; those that take the
config, all of its fields understood, are kin. Of several, the one wins whose name begins alike, then
one that most others descend from, that reads most of the fields and leans least on defaults. Where
none understands every field, the nearest is told.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import InputError
from dragonscale.models.huggingface.fields import Findings
from dragonscale.models.transformer import Transformer, count_parameters

Read = Callable[[str, Findings], tuple[Transformer, int]]
"""Reads the config as a family: the model, and how many fields that matter it understood."""

PLAIN = ("llama", "mistral", "qwen3", "mixtral", "qwen3_moe", "glm4_moe", "deepseek_v3", "deepseek_v2", "gpt2")
"""The families that most others descend from, the plainest first."""

NAMED_ALIKE = 4
"""Letters that two types must begin with to be called alike: 'qwen', 'glm4', 'gemma'."""

SIZES = (
    "hidden_size", "n_embd", "d_model", "num_hidden_layers", "n_layer", "n_layers", "num_layers", "vocab_size",
)  # fmt: skip
APART = 0.01
"""Totals of two readings that differ by more than this part are both told."""


@dataclass(frozen=True)
class Kin:
    """A family that reads the config, and what speaks for it."""

    family: str
    model: Transformer
    findings: Findings
    alike: int
    understood: int

    @property
    def rank(self) -> tuple[int, int, bool, int, int, int, str]:
        """Its place among its like: the lowest is taken."""
        plain = PLAIN.index(self.family) if self.family in PLAIN else len(PLAIN)
        missed, guessed = len(self.findings.refused), len(self.findings.defaulted)
        return (missed, -self.alike, plain == len(PLAIN), -self.understood, guessed, plain, self.family)


def alike(one: str, other: str) -> int:
    """How many letters two names begin with alike, 0 if too few.

    >>> alike("minimax_m3", "minimax_m2"), alike("qwen4_moe", "qwen3_moe"), alike("lamb", "llama")
    (8, 4, 0)
    """
    one, other = (name.replace("_", "").replace("-", "").lower() for name in (one, other))
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return same if same >= NAMED_ALIKE else 0


def kin_of(model_type: str, given: Mapping[str, Any], families: Iterable[str], read: Read) -> list[Kin]:
    """The families that read the config, those that understand every field first."""
    names = [model_type, *(str(name) for name in _listed(given.get("architectures")))]
    found: list[Kin] = []
    for family in families:
        findings = Findings()
        try:
            model, understood = read(family, findings)
        except InputError:
            continue
        close = max(alike(name, family) for name in names)
        found.append(Kin(family, model, findings, close, understood))
    return sorted(found, key=lambda kin: kin.rank)


def told(model_type: str, found: list[Kin]) -> str:
    """What is said of a config that is read as its kin."""
    best = found[0]
    total = count_parameters(best.model).total
    said = (
        f"The model type {model_type!r} is not known; its fields are those of {best.family}, so it is read as that "
        "(`--as FAMILY` takes another)."
    )
    guessed = len(best.findings.defaulted)
    fits = [kin for kin in found[1:] if not kin.findings.refused and len(kin.findings.defaulted) <= guessed]
    for other in [kin for kin in fits if kin.alike or kin.family in PLAIN]:
        apart = count_parameters(other.model).total
        if abs(apart - total) > APART * total:
            return f"{said[:-2]}; as {other.family} it would have {apart:,} parameters and not {total:,})."
    return said


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
