"""`--stack auto`: the stack that people run on a chip for that kind of model, as the table `auto.toml` has it.

>>> from dragonscale.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> auto_stack(parse_slice("v5p:4x4x4"), load_model("llama3-70b"))
'maxtext'
>>> (
...     auto_stack(parse_slice("h100:8"), load_model("llama3-8b")),
...     auto_stack(parse_slice("h100:2048"), load_model("llama3-405b")),
... )
('torchtitan', 'megatron-core')
"""

import functools
import tomllib
from importlib import resources

import msgspec

from dragonscale.hardware import Slice
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.training.legal import native
from dragonscale.training.legality import family

AUTO = "auto"


class AutoChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stack, and the jobs that it is the usual one for."""

    stack: str
    why: str
    source: str
    family: str = ""
    names: tuple[str, ...] = ()
    format: str = ""
    experts: bool | None = None
    parameters: float = float("inf")
    chips: float = float("inf")
    least_chips: float = 0
    dtypes: tuple[str, ...] = ()


@functools.cache
def auto_choices() -> tuple[AutoChoice, ...]:
    """The table, first match first."""
    text = (resources.files("dragonscale.training") / "auto.toml").read_text(encoding="utf-8")
    return tuple(msgspec.convert(row, AutoChoice) for row in tomllib.loads(text)["choices"])


def auto_choice(piece: Slice, model: Transformer, dtype: str = "bf16") -> AutoChoice:
    """What people run there, with the reason."""
    chip, parameters = piece.chip, count_parameters(model).total
    experts = any("e" in section.dims for section in model.program().sections)
    for one in auto_choices():
        if one.names and chip.kin not in one.names:
            continue
        if one.family not in ("", family(chip)) or (one.format and not native(chip, one.format)):
            continue
        size = parameters <= one.parameters and one.least_chips <= piece.chips <= one.chips
        if size and one.experts in (None, experts) and (not one.dtypes or dtype in one.dtypes):
            return one
    raise AssertionError("the last row of auto.toml has no conditions")


def auto_stack(piece: Slice, model: Transformer, dtype: str = "bf16") -> str:
    """The name of the stack that people run there."""
    return auto_choice(piece, model, dtype).stack
