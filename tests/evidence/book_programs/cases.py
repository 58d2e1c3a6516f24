"""The book's sharded programs, one by one: small enough to predict by hand, and to compile for real slices.

Each case is written in the book's notation with sizes of real models (nothing is run, so they cost nothing), for a
slice of GPUs and one of TPUs. What it should send is predicted by the algebra (`case_predictions`), what it is in JAX
stands in `case_programs`, and `case_verdicts` holds the two against each other. The *form* says how a case is written
in JAX:

| form | program | who chooses the collectives |
|---|---|---|
| move | an array from one layout to another | the partitioner |
| einsum | one line | the partitioner |
| forward, backward | a layer of two matrices under a scheme of `training.schemes` | the partitioner |
| lines | several lines, each intermediate laid out as written | the partitioner |
| rings | the same, by `runtime.weight_stationary` | the library |
| attention | a model's attention, forward and backward, by `runtime.lines` | the library |
| ring, ring trained | attention over a split sequence, by `runtime.ring_attention` | the library |
| experts, experts trained | rows to experts and back, by `runtime.expert_exchange` | the library |
| split cache | a decode step's attention, by `runtime.attention` | the library |

>>> case = case_named("case 3, reduce-scatter")
>>> case.texts, case.slices["v5p:2x2x1"]
(('A[I, J_X] · B[J_X, K] -> C[I, K_X]',), {'X': 4})
"""

from dataclasses import dataclass, field

from dragonscale.errors import unknown

Meshes = dict[str, dict[str, int]]
"""Slices by name, each with the mesh laid over it."""

LINE: Meshes = {"h100:8": {"X": 8}, "v5p:2x2x1": {"X": 4}}
TENSOR: Meshes = {"h100:8": {"Y": 8}, "v5p:2x2x1": {"Y": 4}}
GRID: Meshes = {"h100:16": {"X": 4, "Y": 4}, "v5e:4x4": {"X": 4, "Y": 4}}
CUBE: Meshes = {"h100:64": {"X": 16, "Y": 4}, "v5p:4x4x4": {"X": 16, "Y": 4}}
HEADS: Meshes = {"h100:8": {"tensor": 8}, "v5p:2x2x1": {"tensor": 4}}
STATE_AND_HEADS: Meshes = {"h100:16": {"fsdp": 4, "tensor": 4}, "v5e:4x4": {"fsdp": 4, "tensor": 4}}

SQUARE = {"I": 8192, "J": 8192, "K": 8192}
LAYER = {"B": 16384, "D": 8192, "F": 32768}
DECODING = {"B": 64, "D": 8192, "F": 32768}


@dataclass(frozen=True)
class Case:
    """A sharded program: its lines in the book's notation (or the name of a scheme or model), and the sizes of its
    dims."""

    name: str
    form: str
    texts: tuple[str, ...]
    sizes: dict[str, int]
    slices: Meshes = field(default_factory=lambda: LINE)


def _matmul(name: str, text: str, slices: Meshes | None = None, **sizes: int) -> Case:
    return Case(name, "einsum", (text,), {**SQUARE, **sizes}, slices or LINE)


def _scheme(name: str, slices: Meshes, at: str = "") -> list[Case]:
    return [Case(f"{name} {form}{at}", form, (name,), LAYER, slices) for form in ("forward", "backward")]


STATIONARY = (
    "In[B, D_XY] · W_in[D_X, F_Y] -> Tmp[B, F_YX]",
    "Tmp[B, F_YX] · W_out[F_Y, D_X] -> Out[B, D_XY]",
)
BOXES = ("Rows[S_X, E, C, D]", "Rows[S, E_X, C, D]", "Scale:fp32[S_X, E, C]", "Scale:fp32[S, E_X, C]")
"""What every chip sends each expert, before and after the exchange, and the router's weights with it. S counts chips.
"""
JOINED = ("Most:fp32[B, T, N]{U_X}", "Total:fp32[B, T, N]{U_X}", "O[B, T, N, H]{U_X}")
"""What a softmax over split keys leaves to add up: largest scores, sums, weighted values."""
PASSED = ("Key[B, S_X, K, H]", "Value[B, S_X, K, H]", "At:int32[B, S_X]")
"""What goes round a ring of chips that each have a part of the queries: keys, values, and where they stand."""
SEQUENCE = {"B": 1, "S": 16384, "N": 32, "K": 8, "H": 128}
EXPERTS = {"E": 16, "C": 640, "D": 4096, "F": 1024}
CACHE = {"B": 32, "T": 1, "S": 32768, "N": 32, "K": 8, "H": 128}

CASES: tuple[Case, ...] = (
    Case("gather", "move", ("A[I_X, J]", "A[I, J]"), SQUARE),
    Case("exchange", "move", ("A[I_X, J]", "A[I, J_X]"), SQUARE),
    Case("slice", "move", ("A[I, J]", "A[I_X, J]"), SQUARE),
    Case("permute", "move", ("A[I_X, J_Y]", "A[I_Y, J_X]"), SQUARE, GRID),
    _matmul("case 1", "A[I_X, J] · B[J, K] -> C[I_X, K]"),
    _matmul("case 2, narrow", "A[I, J_X] · B[J, K] -> C[I, K]", K=1024),
    _matmul("case 2, square", "A[I, J_X] · B[J, K] -> C[I, K]"),
    _matmul("case 2, wide", "A[I, J_X] · B[J, K] -> C[I, K]", K=65536),
    _matmul("case 3", "A[I, J_X] · B[J_X, K] -> C[I, K]"),
    _matmul("case 3, reduce-scatter", "A[I, J_X] · B[J_X, K] -> C[I, K_X]"),
    _matmul("case 3, scattered rows", "A[I, J_X] · B[J_X, K] -> C[I_X, K]"),
    _matmul("case 4, rows", "A[I_X, J] · B[J, K_X] -> C[I_X, K]"),
    _matmul("case 4, columns", "A[I_X, J] · B[J, K_X] -> C[I, K_X]"),
    _matmul("case 4, whole", "A[I_X, J] · B[J, K_X] -> C[I, K]"),
    _matmul("two axes, gathered weight", "A[I_XY, J] · B[J_XY, K] -> C[I_XY, K]", GRID),
    _matmul("two axes, first matrix", "A[I_X, J_Y] · B[J_X, K_Y] -> C[I_X, K_Y]", GRID),
    _matmul("two axes, second matrix", "A[I_X, J_Y] · B[J_Y, K_X] -> C[I_X, K_Y]", GRID),
    *_scheme("dp", LINE),
    *_scheme("fsdp", LINE),
    *_scheme("tp", TENSOR),
    *_scheme("fsdp+tp", GRID),
    *_scheme("fsdp+tp", CUBE, " on a cube"),
    Case("megatron attention", "attention", ("llama-3-8b",), {"b": 16, "t": 512}, HEADS),
    Case("megatron attention, fsdp", "attention", ("llama-3-8b",), {"b": 16, "t": 512}, STATE_AND_HEADS),
    Case("ring attention", "ring", PASSED, SEQUENCE),
    Case("ring attention, trained", "ring trained", PASSED, {**SEQUENCE, "S": 2048}),
    Case("expert all-to-all", "experts", BOXES, EXPERTS),
    Case("expert all-to-all, trained", "experts trained", BOXES, EXPERTS),
    Case("split cache", "split cache", JOINED, CACHE),
    Case("2D weight-stationary", "lines", STATIONARY, DECODING, GRID),
    Case("2D weight-stationary, rings", "rings", STATIONARY, DECODING, GRID),
)


def case_named(name: str) -> Case:
    """One of `CASES`."""
    for case in CASES:
        if case.name == name:
            return case
    raise unknown("case", name, [case.name for case in CASES])
