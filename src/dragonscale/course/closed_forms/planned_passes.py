"""How long a pass through sharded einsums computes and communicates, and the roofline between the two.

Which collectives a parallelism needs follows from its layouts alone (`chain.passes`); what they cost follows from sizes
and wires. Since the two are apart, a scheme planned on an example can be costed with symbols, and its rule solved:

>>> from dragonscale.course.closed_forms.chip_parts import abstract_chip
>>> from dragonscale.physics.notation import parse_chain
>>> from dragonscale.physics.rooflines import solve_equal, symbol
>>> from dragonscale.physics.sharding.chain import passes
>>> data_parallel = parse_chain("In[B_X, D] · W_in[D, F] · W_out[F, D] -> Out[B_X, D]")
>>> forward, backward = passes(data_parallel, {"B": 2**20, "D": 8192, "F": 32768}, Mesh({"X": 64}))
>>> letters = {name: symbol(name) for name in "BDFXCW"}
>>> wires = Mesh({"X": letters["X"]}, abstract_chip(letters["C"], letters["W"]))
>>> times = pass_times(backward, letters, wires)
>>> times.math, times.comms
(8*B*D*F/(C*X), 8*D*F/W)
>>> solve_equal(times.math, times.comms, letters["B"])
[C*X/W]
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dragonscale.physics.collectives import BOOK, Options, collective_time
from dragonscale.physics.numbers import Number, maximum
from dragonscale.physics.sharding.chain import PlannedEinsum, collectives
from dragonscale.physics.sharding.layout import Sizes
from dragonscale.physics.sharding.mesh import Mesh


@dataclass(frozen=True)
class PassTimes:
    """Seconds that one chip computes and that its network is busy."""

    math: Number
    comms: Number

    def __add__(self, other: "PassTimes") -> "PassTimes":
        return PassTimes(self.math + other.math, self.comms + other.comms)

    @property
    def lower(self) -> Number:
        """Perfect overlap."""
        return maximum(self.math, self.comms)

    @property
    def upper(self) -> Number:
        """No overlap."""
        return self.math + self.comms

    @property
    def bound(self) -> str:
        """`compute` or `comms` (plain numbers only)."""
        return "compute" if self.math >= self.comms else "comms"


def pass_times(
    planned: Iterable[PlannedEinsum],
    sizes: Sizes,
    mesh: Mesh,
    options: Options = BOOK,
    over: Iterable[str] | None = None,
) -> PassTimes:
    """Compute and communication of planned lines on a mesh: the cheapest way of each, every move once.

    A roofline is about large arrays, so only the bandwidth terms of the collectives count, not their latencies.
    `over` counts only the collectives along those mesh axes, for the rule of one parallelism inside a mixed scheme.
    """
    lines = list(planned)
    axes = None if over is None else set(over)
    math = sum(line.best.math_seconds(sizes, mesh) for line in lines)
    steps = [step for step in collectives(lines) if axes is None or set(step.axes) <= axes]
    comms = sum(
        collective_time(step.kind, step.volume(sizes, mesh), mesh.group(step.axes), options).bandwidth for step in steps
    )
    return PassTimes(math, comms)
