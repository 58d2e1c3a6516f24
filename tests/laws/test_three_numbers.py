"""Every public cost function gives the same value for floats, NumPy arrays and SymPy symbols."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import sympy

from dragonscale.course.closed_forms.costs import attention_cost, padded, pointwise_cost, tiled_matmul_cost
from dragonscale.models import Workload, activation_bytes, cache_bytes, forward_flops, load_model, training_flops
from dragonscale.physics import numbers
from dragonscale.physics.collectives import Options, Ring, Rings, Stacked, Switches, Wide, collective_time, wire_bytes
from dragonscale.physics.collectives.cost import KINDS, ragged_fill
from dragonscale.physics.collectives.profile import expected_time
from dragonscale.physics.collectives.profile_file import profile_for
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_chain, parse_einsum
from dragonscale.physics.rooflines import attainable, einsum_cost, rates_of, roofline
from dragonscale.physics.sharding import Mesh, passes

H100, V5E = load_chip("h100"), load_chip("v5e")
LINE = parse_einsum("bf16[B,D] @ int8[D,F] -> bf16[B,F]")
MIXED = parse_chain("In[B_X, D_Y] · W_in[D_X, F_Y] · W_out[F_Y, D_X] -> Out[B_X, D_Y]")
GEMMA = load_model("gemma2-9b").program().sections
DEEPSEEK = load_model("deepseek-v3").program().sections

Function = Callable[..., Any]
GROUPS: dict[str, Function] = {
    "ring": lambda n: Rings((Ring(n),), 45e9, 1e-6),
    "line": lambda n: Rings((Ring(n, False),), 45e9, 1e-6),
    "torus": lambda n: Rings((Ring(n), Ring(4), Ring(2, False)), 45e9, 1e-6),
    "switches": lambda n: Switches(n * 8, H100.network.levels, 1),  # pyright: ignore[reportAttributeAccessIssue]
    "strided": lambda n: Switches(n, H100.network.levels, 8),  # pyright: ignore[reportAttributeAccessIssue]
    "dcn": lambda n: Wide(n, 6.25e9, 1e-5),
    "stacked": lambda n: Stacked(Rings((Ring(16),), 45e9, 1e-6), Wide(n, 6.25e9, 1e-5)),
}


def _mesh_cost(b: Any, x: Any, y: Any) -> Any:
    sizes = {"B": b * 4096, "D": 8192, "F": 32768}
    plain = {"B": 49152, "D": 8192, "F": 32768}
    there, back = passes(MIXED, plain, Mesh({"X": 16, "Y": 4}))
    mesh = Mesh({"X": x, "Y": y})
    return sum(planned.best.wire_bytes(sizes, mesh) + planned.best.flops(sizes, mesh) for planned in [*there, *back])


FUNCTIONS: dict[str, tuple[Function, list[tuple[float, ...]]]] = {
    "einsum roofline lower": (
        lambda b, d, f: roofline(einsum_cost(LINE, {"B": b, "D": d, "F": f}), rates_of(V5E)).lower,
        [(64, 4096, 8192), (4096, 512, 512)],
    ),
    "einsum roofline upper": (
        lambda b, d, f: roofline(einsum_cost(LINE, {"B": b, "D": d, "F": f}, exact=True), rates_of(V5E)).upper,
        [(64, 4096, 8192), (4096, 512, 512)],
    ),
    "attainable": (lambda i: attainable(i, 197e12, 820e9), [(100.0,), (500.0,)]),
    "pointwise": (lambda n: roofline(pointwise_cost(n, 2, 1, 1), rates_of(V5E)).lower, [(1e6,), (1e9,)]),
    "tiled": (lambda m: tiled_matmul_cost(m, 4096, 4096, (128, 128, 128)).intensity(), [(4096.0,), (8192.0,)]),
    "attention": (lambda t: roofline(attention_cost(1, t, 8192, 8, 8, 128), rates_of(H100)).lower, [(1.0,), (8192.0,)]),
    "padding": (lambda m: padded((m, 128), (128, 128))[1], [(64.0,), (300.0,)]),
    "ragged": (lambda k: ragged_fill(k, 8), [(1.0,), (6.0,)]),
    "forward flops": (lambda t: sum(forward_flops(GEMMA, Workload(2, t, t)).values()), [(1024.0,), (16384.0,)]),
    "decode flops": (lambda s: sum(forward_flops(DEEPSEEK, Workload(64, 1, s)).values()), [(1024.0,), (131072.0,)]),
    "training flops": (lambda t: sum(training_flops(DEEPSEEK, Workload(1, t, t)).values()), [(1024.0,), (16384.0,)]),
    "cache": (lambda s: sum(cache_bytes(GEMMA, s, "int8").values()), [(100.0,), (65536.0,)]),
    "reserved cache": (
        lambda s: sum(cache_bytes(GEMMA, s, "bf16", page=16, hybrid=False).values()),
        [(100.0,), (65536.0,)],
    ),
    "activations": (
        lambda t: sum(activation_bytes(GEMMA, Workload(1, t, t), "matmuls").values()),
        [(100.0,), (8192.0,)],
    ),
    "sharded chain": (_mesh_cost, [(12, 16, 4), (120, 32, 8)]),
}
for _kind in KINDS:
    FUNCTIONS[f"wire {_kind}"] = (lambda v, n, kind=_kind: wire_bytes(kind, v, n), [(1e6, 2), (3e9, 64)])
    for _name, _group in GROUPS.items():
        for _exact in (False, True):
            FUNCTIONS[f"{_kind} {_name} {'exact' if _exact else 'first order'}"] = (
                lambda v, n, kind=_kind, group=_group, exact=_exact: (
                    collective_time(kind, v, group(n), Options(exact=exact)).lower
                ),
                [(1e4, 4), (1e9, 16)],
            )
        FUNCTIONS[f"expected {_kind} {_name}"] = (
            lambda v, n, kind=_kind, group=_group, chip=(H100 if _name in ("switches", "strided") else V5E): (
                expected_time(kind, v, group(n), profile_for(chip))
            ),
            [(1e4, 4), (1e9, 16)],
        )


EVERY = list(FUNCTIONS)


@pytest.mark.parametrize(
    "name", [name if name in EVERY[::3] else pytest.param(name, marks=pytest.mark.slow) for name in EVERY]
)
def test_same_value_in_every_domain(name: str) -> None:
    function, points = FUNCTIONS[name]
    scalars = [float(function(*point)) for point in points]
    columns = [numpy.array(column, dtype=float) for column in zip(*points, strict=True)]
    arrays = numpy.broadcast_to(function(*columns), (len(points),))
    numpy.testing.assert_allclose(arrays, scalars, rtol=1e-9)
    letters = [sympy.Symbol(f"x{place}", positive=True) for place in range(len(points[0]))]
    formula = sympy.sympify(function(*letters))
    for point, scalar in zip(points, scalars, strict=True):
        assert float(formula.subs(dict(zip(letters, point, strict=True)))) == pytest.approx(scalar, rel=1e-9)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes(name: str) -> None:
    function = getattr(numbers, name)
    letter = sympy.Symbol("x", positive=True)
    for value in (1.0, 3.0):
        symbolic = float(function(letter, 2).subs(letter, value))
        assert function(value, 2.0) == function(numpy.array([value]), 2.0)[0] == symbolic


@pytest.mark.parametrize("name", ["ceil", "floor", "sqrt", "log2"])
def test_one_argument(name: str) -> None:
    function = getattr(numbers, name)
    letter = sympy.Symbol("x", positive=True)
    for value in (1.5, 4.0):
        assert float(function(letter).subs(letter, value)) == pytest.approx(float(function(numpy.array([value]))[0]))
        assert float(function(value)) == pytest.approx(float(function(numpy.array([value]))[0]))
