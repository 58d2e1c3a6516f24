"""What an optimizer keeps and does: bytes of its state, bytes that an update moves, and which weights Muon treats as
matrices.

| optimizer | state beside the master copy | source |
|---|---|---|
| adam | two fp32 moments | Kingma & Ba 2015 |
| adam-bf16 | both in bf16 | |
| adam8 | both in 8 bits, with an fp32 scale for every 256 of them | bitsandbytes, torchao (block_size 256) |
| adafactor | sums of rows and columns | Shazeer & Stern 2018 |
| muon | an fp32 momentum of each matrix, Adam's two of all else | Jordan 2024, Moonlight (Liu et al. 2025) |
| lion | one fp32 momentum | Chen et al. 2023 (arXiv 2302.06675) |
| sgd | nothing | |
| galore | Adam's two in bf16, of a matrix's gradient projected to rank 128, and the projection | Zhao et al. 2024 |
| lion | one fp32 moment | Chen et al. 2023 |

`galore-layerwise` updates each weight as its gradient is there, so that gradients are never all in memory
(`optim_target_modules` with galore_adamw_layerwise in transformers, which takes no gradient accumulation). The time of
GaLore's singular value decompositions, one of each matrix every 200 steps, is not counted.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dragonscale.models.program import Section
from dragonscale.physics.notation import Array
from dragonscale.training.plan.plan import Plan

SCALES = 2 * 4.0 / 256
"""Bytes per parameter of the fp32 scales of its two 8-bit moments, one for every 256."""
OPTIMIZER_BYTES = {
    "adam": 8.0,
    "adam-bf16": 4.0,
    "adam8": 2.0 + SCALES,
    "adafactor": 0.1,
    "muon": 8.0,
    "lion": 4.0,
    "galore": 4.0,
    "galore-layerwise": 4.0,
    "sgd": 0.0,
}
"""Bytes of state per parameter, beside the master copy; Muon's matrices have `MOMENTUM_BYTES`."""
MOMENTUM_BYTES = 4.0  # one fp32 momentum for a parameter of a matrix
MATRIX_BYTES = {"muon": MOMENTUM_BYTES}
"""Bytes of state of those parameters of matrices that an optimizer treats otherwise; 0 of those that GaLore projects
away."""
GALORE = ("galore", "galore-layerwise")
GALORE_RANK = 128
"""The default of transformers' GaLore optimizers (trainer.py, optim_args rank)."""

QUANTIZING = 47 / 63 / (18 / 30)
"""Seconds of an 8-bit update over those that its bytes take at a 32-bit one's rate: moments are looked up in a table
and searched in it again (Dettmers et al. 2022, table 5: 47 ms for a billion parameters where Apex's fused Adam takes
63)."""
UPDATE_BYTES = {name: 14.0 + 2 * state for name, state in OPTIMIZER_BYTES.items()} | {"adafactor": 14.5}
"""Bytes that an update moves per parameter: the gradient and master copy read, the moments read and written, the master
copy and the weight written; Adafactor reads its sums of rows and columns more than once."""
MATRIX_UPDATE_BYTES = 26.0
"""The same for Muon's matrices: one moment, and in bf16 what is orthogonalized, written and read back."""
SLOWER = {"adam8": QUANTIZING}
"""Seconds of an update over those of its bytes."""


@dataclass(frozen=True)
class MuonWeight:
    """A weight that Muon orthogonalizes, with the dims that are its matrix's rows (summed over) and columns (put out).
    Experts are many matrices, each on its own."""

    array: Array
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def muon_weights(section: Section) -> Iterator[MuonWeight]:
    """The weights of a layer that Muon orthogonalizes; none of the embedding and the head."""
    if section.name in ("embed", "head"):
        return
    # A weight that several ops read is the matrix of the last of them.
    readers = {array.name: (op, array) for op in section.ops for array in op.weights}
    for op, array in readers.values():
        if op.function != "einsum" or op.output is None or not array.name.startswith("W"):
            continue
        dims = [dim.name for dim in array.dims if not dim.select]
        rows = tuple(name for name in dims if name not in op.output.names)
        columns = tuple(name for name in dims if name in op.output.names)
        if rows and columns:
            yield MuonWeight(array, rows, columns)


def matrix_shares(section: Section, plan: Plan) -> dict[str, float]:
    """The part of each matrix of a section whose state is `MATRIX_BYTES`: all of those that Muon orthogonalizes, and of
    those that GaLore projects what is beyond the projected moments and the projection itself."""
    if plan.optimizer == "muon":
        return {weight.array.name: 1.0 for weight in muon_weights(section)}
    if plan.optimizer not in GALORE:
        return {}
    shares: dict[str, float] = {}
    for weight in muon_weights(section):
        rows = math.prod(section.dims[name] for name in weight.rows)
        columns = math.prod(section.dims[name] for name in weight.columns)
        small, large = sorted((rows, columns))
        # of two moments for each element: two of rank x large, and a projection of rank x small
        kept = GALORE_RANK * (2 * large + small) / (2 * rows * columns)
        shares[weight.array.name] = max(0.0, 1 - kept)
    return shares
