"""Sending activations from stage to stage of a pipeline.

Each stage passes a microbatch on as soon as it is done, so the sends of one pass follow each other only along the
critical path: the first microbatch crosses the `stages − 1` borders, and the `microbatches − 1` others come behind it.
"""

from dragonscale.physics.collectives.cost import Seconds, collective_time
from dragonscale.physics.collectives.group import Group
from dragonscale.physics.numbers import Number


def pipeline_hops(microbatches: Number, stages: Number) -> Number:
    """Sends that follow each other in one pass of a pipeline.

    >>> pipeline_hops(28, 16)
    42
    """
    return (microbatches - 1) + (stages - 1)


def pipeline_time(volume: Number, microbatches: Number, stages: Number, group: Group) -> tuple[Seconds, Seconds]:
    """The time of one send, and of all that follow each other in one pass.

    `volume` is the bytes of the activations of the whole batch at a border between stages, as one chip of a stage holds
    them; `group` is the wires between neighbouring stages.
    """
    hop = collective_time("permute", volume / microbatches, group)
    return hop, hop * pipeline_hops(microbatches, stages)
