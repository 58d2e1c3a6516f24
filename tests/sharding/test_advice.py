"""The sentence that `dscale shard` ends with: of both passes, each with what it needs and what bounds it."""

import pytest

import dragonscale as ds

LAYER = "In[B_X,D] · W1[D,F] · W2[F,D] -> Out[B_X,D]"
HIDDEN = "bound by compute, under which everything else can hide"


def test_a_data_parallel_layer_is_bound_by_the_reduction_of_its_gradients() -> None:
    """8BDF/(XC) = 2.10 ms of backward matmuls and two AllReduces, 8DF/(3W) = 3.48 ms (512 tokens a chip, of 850)."""
    sizes = {"B": 262144, "D": 8192, "F": 28672}
    found = ds.shard(LAYER, on="v5p:8x8x8", mesh={"X": 512}, sizes=sizes)
    compute = sum(float(line.strategies[0].math_s or 0) for line in found.backward)
    wires = sum(float(row.seconds or 0) for row in found.backward_collectives)
    assert compute == pytest.approx(2.10e-3, rel=0.01)
    assert wires == pytest.approx(3.48e-3, rel=0.01)
    there, back = found.advice.split(". Backward ")
    assert there == f"Forward needs no communication; {HIDDEN}"
    assert back.startswith("needs all_reduce of dW2 over X; all_reduce of dW1 over X; bound by the network, 1.66x ")
    alone = ds.shard(LAYER, on="v5p:8x8x8", mesh={"X": 512}, sizes=sizes, backward=False)
    assert alone.advice == f"Needs no communication; {HIDDEN}."


def test_a_larger_batch_hides_the_reduction() -> None:
    found = ds.shard(LAYER, on="v5p:8x8x8", mesh={"X": 512}, sizes={"B": 524288, "D": 8192, "F": 28672})
    assert found.advice.startswith("Forward needs no communication. Backward needs all_reduce of dW2 over X; ")
    assert found.advice.endswith(f" Bound{HIDDEN.removeprefix('bound')}.")


def test_a_slice_is_free_forward_and_gathered_backward() -> None:
    found = ds.shard("A[I, J] -> B[I, J_X]", on="v5e:4x4", sizes={"I": 1024, "J": 1024})
    assert found.advice.startswith("Forward needs no communication; each chip keeps its part")
    assert "Backward needs all_gather of dA over X; a reshard computes nothing" in found.advice
