"""A serving plan: how many ways one copy of the model is split, and in which formats it is held.

Mesh axes, slowest first: `pipe` splits the layers; `data` splits the batch, with a replica of everything but the
experts in each place (attention data parallelism); `context` splits the cached keys, and a prompt's tokens, along the
sequence; `width` splits the model's width, so that weights are split two ways and neither moves (2D weight-stationary);
`tensor` splits heads, hidden dims and the vocabulary. Their product is the number of chips. `expert` is not an axis of
its own: of the data x tensor chips that share a layer's experts, it says how many ways the experts themselves are dealt
out; the rest slices each of them.

>>> plan = parse_serving_plan("tensor=8,expert=8,weights=fp8")
>>> plan.chips, plan.expert, plan.kv
(8, 8, 'bf16')
>>> print(plan)
tensor=8,expert=8,weights=fp8

The mesh of a serving plan. What a plan calls `tensor` is three axes here, because experts and the cache may use a
part of it each: `expert` deals out experts, `share` is what lies beyond the KV heads, `tensor` is the rest; heads,
hidden dims and the vocabulary are split over all three (`dragonscale.plan.rules`).
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
from dragonscale.plan.unknown_setting import PlanWords, unknown_setting

AXES = ("pipe", "data", "context", "width", "tensor")
SHORT = {"tp": "tensor", "dp": "data", "ep": "expert", "cp": "context", "w": "width", "pp": "pipe"}
"""Degrees as tables print them."""
SPREADS = ("copy", "batch", "sequence")


@dataclass(frozen=True)
class ServingPlan:
    """One way to serve. `spread` says what the part of `tensor` beyond the KV heads does with the cache: keep copies,
    split it by sequence in the batch (an AllToAll of queries there and back), or along each sequence. `weights`, `kv`
    and `compute` are the formats of stored weights, of the cache and of the matmuls; `attention` is that of the
    attention's own weights and matmuls where it differs (many narrow checkpoints keep it wide); `wire` that of
    activations between chips, which engines send in bf16 unless they quantise collectives."""

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
        """Whether it is wide expert parallelism: data-parallel attention with experts over all ranks."""
        return self.data > 1 and self.expert == self.data * self.tensor == self.chips

    def __str__(self) -> str:
        changed = (f"{name}={value}" for name, value in vars(self).items() if value != getattr(ServingPlan, name))
        return ",".join(changed) or "tensor=1"


def paired(stored: str, known: Iterable[str]) -> str:
    """The format that stores in a dtype and multiplies in another, where a dtype alone is none.

    >>> paired("int4", ["bf16", "int4_bf16"])
    'int4_bf16'
    """
    return next((name for name in known if name.startswith(f"{stored}_")), "")


def read_setting(name: str, value: Any) -> Any:
    """One entry of a plan, checked."""
    names = [field.name for field in fields(ServingPlan)]
    if name not in names:
        raise unknown("part of a serving plan called", name, names)
    text = str(value).strip()
    if name == "spread":
        if text not in SPREADS:
            raise unknown("spread", text, SPREADS)
        return text
    if name in ("weights", "kv", "compute", "attention", "wire"):
        known = [*FORMATS] if name == "attention" else [*DTYPE_BYTES, "fp8_block"]
        if text not in known:
            raise unknown("dtype", text, known, close=paired(text, known))
        return text
    if not re.fullmatch(r"\d{1,6}", text) or int(text) < 1:
        raise InputError(f"In a serving plan {name} is {shorten(value)}; write a whole number of at least 1.")
    return int(text)


def _settings(text: str) -> dict[str, str]:
    """The settings of a plan as it is written, each once."""
    found: dict[str, str] = {}
    for part in re.split(r"[,\s]+", re.sub(r"\s*=\s*", "=", text.strip())):
        if not part:
            continue
        name, equals, value = part.partition("=")
        short = re.fullmatch(r"([a-z]+)(\d+)", name)
        if not equals and short and short[1] in (*SHORT, *SHORT.values()):
            name, equals, value = short[1], "=", short[2]
        if not equals:
            raise unknown_setting(part, text, _plan_words())
        name = SHORT.get(name, name)
        if name in found:
            raise InputError(f"In the plan {shorten(text)} {name} is given twice.")
        found[name] = value
    return found


def _plan_words() -> PlanWords:
    """What a serving plan is written with."""
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
    """The settings that a plan names, as `parse_serving_plan` reads it.

    >>> sorted(given_settings("tp8 pp2"))
    ['pipe', 'tensor']
    """
    return frozenset(_settings(text))


HEADS = ("expert", "tensor", "share")


def mesh_axes(plan: ServingPlan, kv_heads: Number) -> dict[str, Number]:
    """The sizes of the mesh axes of a plan, whose numbers may be arrays. `kv_heads` are those of the layer with the
    fewest."""
    dealt = maximum(plan.expert / plan.data, 1)
    rest = plan.tensor / dealt
    beyond = minimum(maximum(plan.tensor / kv_heads, 1), rest) if plan.spread != "copy" else where(rest > 0, 1, 1)
    plain = {axis: getattr(plan, axis) for axis in AXES[:-1]}
    return plain | {"expert": dealt, "tensor": rest / beyond, "share": beyond}


def shared_kv(dims: dict[str, Number], mesh: Mesh) -> bool:
    """Whether chips with query heads of their own share KV heads evenly: each of a compiled program's then has a copy
    of one."""
    many = numpy.ravel(mesh.size(*HEADS))[0]  # plans that are judged together are split alike
    return bool("k" in dims and dims["k"] < many and many % dims["k"] == 0 and dims["n"] % many == 0)
