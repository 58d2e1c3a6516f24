"""A serving plan: how many ways one copy of the model is split over chips, and its number formats.

Mesh axes, slowest first:

- `pipe` splits the layers.
- `data` splits the batch; each part has a replica of everything but the experts (attention data parallelism).
- `context` splits the cached keys, and a prompt's tokens, along the sequence.
- `width` splits the model's width, so that weights are split two ways and neither moves (2D weight-stationary).
- `tensor` splits heads, hidden dims and the vocabulary.

Their product is the number of chips. `expert` is not an axis of its own: of the data x tensor chips that share a
layer's experts, it says how many ways the experts themselves are dealt out; the remaining ways slice each expert.

>>> plan = parse_serving_plan("tensor=8,expert=8,weights=fp8")
>>> plan.chips, plan.expert, plan.kv
(8, 8, 'bf16')
>>> print(plan)
tensor=8,expert=8,weights=fp8

In the mesh of a plan (`mesh_axes`), `tensor` becomes three axes, because experts and the cache may each use a part of
it: `expert` deals out experts, `share` is what lies beyond the KV heads, `tensor` is the rest. Heads, hidden dims and
the vocabulary are split over all three (`dragonscale.plan.rules`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.hardware.chip import DTYPE_BYTES
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.stored_formats import read_format, stored_bytes
from dragonscale.plan.unknown_setting import PlanWords, unknown_setting

AXES = ("pipe", "data", "context", "width", "tensor")
DEGREES = ("tensor", "data", "expert", "context", "width", "pipe")
"""The numbers of a plan; its other settings are formats and `spread`."""
SHORT = {"tp": "tensor", "dp": "data", "ep": "expert", "cp": "context", "w": "width", "pp": "pipe"}
"""Abbreviations of degrees, as tables print them."""
SPREADS = ("copy", "batch", "sequence")


@dataclass(frozen=True)
class ServingPlan:
    """One way to serve a model.

    `spread` is what the part of `tensor` beyond the KV heads does with the cache: keep copies (`copy`), split it by
    sequence (`batch`, an AllToAll of queries there and back), or split each sequence (`sequence`).

    Formats: `weights` as stored, `kv` of the cache, `compute` of the matmuls; `attention` for the attention's own
    weights and matmuls if it differs (many narrow checkpoints keep it wide); `wire` for activations between chips,
    which engines send in bf16 unless they quantise collectives.
    """

    tensor: int = 1
    data: int = 1
    expert: int = 1
    context: int = 1
    width: int = 1
    pipe: int = 1
    spread: str = "copy"
    weights: str = "bf16"
    kv: str = "bf16"
    compute: str = "bf16"
    attention: str = ""
    wire: str = "bf16"

    @property
    def chips(self) -> int:
        """Chips of one copy of the model."""
        return self.tensor * self.data * self.context * self.width * self.pipe

    @property
    def is_wide(self) -> bool:
        """Whether this is wide expert parallelism: data-parallel attention with experts over all ranks."""
        return self.data > 1 and self.expert == self.data * self.tensor == self.chips

    def __str__(self) -> str:
        changed = (f"{name}={value}" for name, value in vars(self).items() if value != getattr(ServingPlan, name))
        return ",".join(changed) or "tensor=1"


def paired(stored: str, names: Iterable[str]) -> str:
    """The first of some formats that stores weights in a dtype but multiplies in another; empty if there is none.

    >>> paired("int4", ["bf16", "int4_bf16"])
    'int4_bf16'
    """
    return next((name for name in names if name.startswith(f"{stored}_")), "")


def read_setting(name: str, value: Any) -> Any:
    """The checked value of one setting of a plan."""
    names = [field.name for field in fields(ServingPlan)]
    if name not in names:
        raise unknown("part of a serving plan called", name, names)
    text = str(value).strip()
    if name == "spread":
        if text not in SPREADS:
            raise unknown("spread", text, SPREADS)
        return text
    if name in ("weights", "kv", "compute", "attention", "wire"):
        # `attention` is a format of kernels, the others are dtypes of stored numbers
        dtypes = [*FORMATS] if name == "attention" else [*DTYPE_BYTES, "fp8_block"]
        if stored_bytes(read_format(text)) is not None and name in ("weights", "kv"):
            return read_format(text)
        if text not in dtypes:
            raise unknown("dtype", text, dtypes, close=paired(text, dtypes))
        return text
    if not re.fullmatch(r"\d{1,6}", text) or int(text) < 1:
        raise InputError(f"In a serving plan {name} is {shorten(value)}; write a whole number of at least 1.")
    return int(text)


def _settings(text: str) -> dict[str, str]:
    """The settings of a written plan by their full names, each at most once."""
    settings: dict[str, str] = {}
    for part in re.split(r"[,\s]+", re.sub(r"\s*=\s*", "=", text.strip())):
        if not part:
            continue
        name, equals, value = part.partition("=")
        short = re.fullmatch(r"([a-z]+)(\d+)", name)  # tp8, as tables print a degree
        if not equals and short and short[1] in (*SHORT, *SHORT.values()):
            name, equals, value = short[1], "=", short[2]
        if not equals:
            raise unknown_setting(part, text, _plan_words())
        name = SHORT.get(name, name)
        if name in settings:
            raise InputError(f"In the plan {shorten(text)} {name} is given twice.")
        settings[name] = value
    return settings


def _plan_words() -> PlanWords:
    """The vocabulary of written serving plans, for error messages."""
    defaults = vars(ServingPlan())
    degrees = ", ".join(f"{word} ({name})" for word, name in SHORT.items())
    rest = ", ".join(name for name in defaults if name not in SHORT.values())
    return PlanWords(
        examples={name: value or "bf16" for name, value in defaults.items()},
        short=SHORT,
        degrees=[*SHORT, *SHORT.values()],
        alone=(),
        usage=f"A plan has degrees, written tp8 or tensor=8 ({degrees}), and {rest}, as weights=fp8.",
    )


def parse_serving_plan(text: str) -> ServingPlan:
    """Read `tensor=8,data=2,weights=fp8,…`, or the short form that tables print.

    >>> print(parse_serving_plan("tp8 dp2 ep16"), parse_serving_plan("tp=8,pp=2"))
    tensor=8,data=2,expert=16 tensor=8,pipe=2
    """
    return replace(ServingPlan(), **{name: read_setting(name, value) for name, value in _settings(text).items()})


def given_settings(text: str) -> frozenset[str]:
    """The names of the settings that a written plan contains.

    >>> sorted(given_settings("tp8 pp2"))
    ['pipe', 'tensor']
    """
    return frozenset(_settings(text))


# Mesh axes that `tensor` becomes; heads are split over all of them.
HEADS = ("expert", "tensor", "share")


def mesh_axes(plan: ServingPlan, kv_heads: Number) -> dict[str, Number]:
    """Sizes of the mesh axes of a plan, whose degrees may be arrays.

    `kv_heads` is the number of KV heads of the layer with the fewest.
    """
    # Experts are dealt out over `data` first; what goes beyond comes out of `tensor`.
    expert = maximum(plan.expert / plan.data, 1)
    rest = plan.tensor / expert
    share = where(rest > 0, 1, 1)  # an array of ones for a plan of arrays
    if plan.spread != "copy":
        share = minimum(maximum(plan.tensor / kv_heads, 1), rest)
    plain = {axis: getattr(plan, axis) for axis in AXES[:-1]}
    return plain | {"expert": expert, "tensor": rest / share, "share": share}


def shared_kv(dims: dict[str, Number], mesh: Mesh) -> bool:
    """Whether each KV head is shared by equally many chips, so that each chip of a compiled program has one copy."""
    ways = numpy.ravel(mesh.size(*HEADS))[0]  # plans that are judged together are split alike
    return bool("k" in dims and dims["k"] < ways and ways % dims["k"] == 0 and dims["n"] % ways == 0)
