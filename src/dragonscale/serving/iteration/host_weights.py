"""Weights that stay in the host's memory (`-ngl`, `--cpu-moe`, `--n-cpu-moe` of llama.cpp): what they cost.

While decoding, the CPU multiplies them where they lie, at a part of its memory's bandwidth. Prompts are multiplied on
the GPU, to which the weights are copied for every part of a prompt.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dragonscale.models.program import Section
from dragonscale.physics.hardware import Chip
from dragonscale.physics.numbers import Number
from dragonscale.serving.engine.engine_settings import EngineOffload
from dragonscale.serving.iteration.iteration import ServingLine

WEIGHT_KINDS = ("matmul", "grouped matmul")
ENDS = ("embed", "head")


def host_share(offload: EngineOffload, section: str, part: str, layers: int) -> float:
    """The fraction of a part's weights, over the layers, that stays in the host's memory.

    >>> offload = EngineOffload(layers=8, expert_layers=24)
    >>> [host_share(offload, "block", part, layers=32) for part in ("experts", "attention")]
    [0.75, 0.25]
    """
    if section in ENDS:
        return 0.0
    count = max(offload.layers, offload.expert_layers if part == "experts" else 0)
    return min(count / layers, 1.0)


def with_host_weights(
    lines: Iterable[ServingLine], sections: Iterable[Section], offload: EngineOffload, chip: Chip, layers: int
) -> Iterator[ServingLine]:
    """The lines of an iteration, those of weights in the host's memory at its pace."""
    names = {section.name for section in sections}
    for line in lines:
        share = 0.0
        if line.kind in WEIGHT_KINDS and line.section in names:
            share = host_share(offload, line.section, line.part, layers)
        if share < 1:
            yield replace(line, times=line.times * (1 - share))
        if share > 0:
            seconds = _host_seconds(line, offload, chip)
            bound = line.hbm_bytes / offload.bytes_per_s
            yield replace(
                line,
                what=f"{line.what} (host)",
                times=line.times * share,
                hbm_bytes=0.0,
                memory_s=0.0,
                bound_s=bound,
                expected_s=seconds,
                exposed_s=seconds,
            )


def _host_seconds(line: ServingLine, offload: EngineOffload, chip: Chip) -> Number:
    """Seconds of one line's weights: read by the CPU, or copied to the GPU and multiplied there."""
    if line.phase == "decode":
        return line.hbm_bytes / (offload.bytes_per_s * offload.read) + offload.switch_s
    return line.hbm_bytes / chip.bandwidth("pcie") + line.expected_s
