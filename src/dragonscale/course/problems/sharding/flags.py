"""Meshes, sizes and links as questions and commands write them."""

from dragonscale.course.words import amount
from dragonscale.physics.hardware import Chip, Torus, load_chip

FIRST_ORDER = "to first order, that is without the (N-1)/N"


def given(values: dict[str, int], apart: str = ",") -> str:
    """`X=8,Y=2`, as flags take it.

    >>> given({"X": 8, "Y": 2}), given({"B": 64, "D": 128}, ", ")
    ('X=8,Y=2', 'B=64, D=128')
    """
    return apart.join(f"{name}={value}" for name, value in values.items())


def torus(name: str) -> tuple[Chip, float]:
    """A TPU and one direction of one of its links."""
    chip = load_chip(name)
    assert isinstance(chip.network, Torus)
    return chip, chip.network.link


def hop_seconds_of(chip: Chip) -> float:
    """The least time of one hop."""
    assert isinstance(chip.network, Torus)
    return chip.network.hop_latency


def link_words(link: float) -> str:
    """A link's two directions in words."""
    return (
        f"{amount(link, 'bytes/s')} in each direction of a link, {amount(2 * link, 'bytes/s')} both ways along an axis"
    )
