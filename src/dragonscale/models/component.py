"""A part of a block: an attention, an MLP, a state-space mixer. It gives lines of a program and the sizes of their dims."""

from abc import ABC, abstractmethod

from dragonscale.models.program import Op, parsed


class Component(ABC):
    """Something that contributes lines and dims to a block."""

    @property
    @abstractmethod
    def dims(self) -> dict[str, int]:
        """The sizes of the dims that its lines name."""

    @abstractmethod
    def ops(self) -> tuple[Op, ...]:
        """Its lines, from the block's normed input `X[b,t,d]` to its result."""


class Written(Component):
    """A part whose lines are written out as text."""

    @abstractmethod
    def lines(self) -> list[str]:
        """The text of its lines."""

    def ops(self) -> tuple[Op, ...]:
        return parsed(self.lines())


def projected(part: str, output: str, source: str, weight: str, bias: str = "") -> list[str]:
    """The line `output = source · weight`, and the one that adds a bias where there is one.

    >>> projected("mlp", "U[b,t,f]", "X[b,t,d]", "Wu[d,f]", "w_u[f]")
    ['mlp: U[b,t,f] = X[b,t,d] · Wu[d,f]', 'mlp: U[b,t,f] = bias(U[b,t,f]; w_u[f])']
    """
    lines = [f"{part}: {output} = {source} · {weight}"]
    return [*lines, f"{part}: {output} = bias({output}; {bias})"] if bias else lines
