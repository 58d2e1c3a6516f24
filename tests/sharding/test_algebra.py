"""The rule, case by case: what each line of the book needs, which case it is, and what is refused."""

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.sharding import Mesh, book_case, derive, reshard, strategies
from tests.sharding.readings import natural_output

SIZES = {"B": 64, "I": 256, "J": 256, "K": 256, "L": 64}
MESH = Mesh({"X": 4, "Y": 4})


@pytest.mark.parametrize(
    ("line", "case", "best"),
    [
        ("A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]", 1, []),
        ("A[I, J_X] @ B[J, K] -> C[I, K]", 2, ["all_gather"]),
        ("A[I, J_X] @ B[J_X, K] -> C[I, K]", 3, ["all_reduce"]),
        ("A[I, J_X] @ B[J_X, K] -> C[I, K_X]", 3, ["reduce_scatter"]),
        ("A[I_X, J] @ B[J, K_X] -> C[I_X, K]", 4, ["all_gather"]),
        # A batch dim split alike in both operands is no conflict, whatever the order of the dims.
        ("A[B_X, I, J] @ B[B_X, J, K] -> C[B_X, I, K]", 1, []),
        ("A[I, J_X, L] @ B[L, J_X, K] -> C[I, K]", 3, ["all_reduce"]),
        # Mixed FSDP and tensor parallelism.
        ("A[I_X, J_Y] @ B[J_X, K_Y] -> C[I_X, K_Y]", 2, ["all_gather", "all_gather"]),
    ],
)
def test_the_books_cases(line: str, case: int, best: list[str]) -> None:
    einsum = parse_einsum(line)
    mesh = Mesh({axis: size for axis, size in MESH.axes.items() if axis in einsum.axes})
    assert book_case(einsum) == case
    assert [step.kind for step in strategies(einsum, SIZES, mesh)[0].collectives] == best


@pytest.mark.parametrize(
    ("line", "natural"),
    [
        ("A[I_X, J] @ B[J, K_Y]", "[I_X, K_Y]"),
        ("A[I, J_X] @ B[J_X, K] -> C[I, K]", "C[I, K]{U_X}"),
        ("A[I, J_X] @ B[J, K] -> C[I, K]", "None"),
        ("A[I_X, J] @ B[J, K_X] -> C[I_X, K]", "None"),
        ("A[I]{U_X} @ B[I] -> C[]", "None"),
    ],
)
def test_natural_outputs(line: str, natural: str) -> None:
    assert str(natural_output(parse_einsum(line))) == natural


def test_partial_sums_are_kept_only_where_they_arise() -> None:
    mesh = Mesh({"X": 4})
    kept = derive(parse_einsum("A[I, J_X] @ B[J_X, K] -> C[I, K]{U_X}"), mesh)
    assert [strategy.collectives for strategy in kept] == [()]
    with pytest.raises(InputError, match="is to hold partial sums over X, but no summed dim is split over that"):
        strategies(parse_einsum("A[I_X, J] @ B[J, K] -> C[I, K]{U_X}"), SIZES, mesh)
    with pytest.raises(InputError, match="holds no partial sums over X, so it cannot become"):
        reshard(parse_array("A[I]"), parse_array("A[I]{U_X}"), mesh)


def test_what_does_not_divide_or_exist_is_said() -> None:
    line = parse_einsum("A[I_X, J] @ B[J, K] -> C[I_X, K]")
    with pytest.raises(InputError, match=r"The dim I=6 of A\[I_X, J\] does not divide into 4 parts \(mesh axes X\)."):
        strategies(line, {"I": 6, "J": 8, "K": 8}, Mesh({"X": 4}))
    with pytest.raises(InputError, match="There is no mesh axis 'X'"):
        strategies(line, SIZES, Mesh({"Y": 4}))
