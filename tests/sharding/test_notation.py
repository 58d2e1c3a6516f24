"""The notation as tables: what is valid and what it means, what is not and what is said about it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.errors import InputError
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.sharding import parse_mesh

ARRAYS = {
    "A[I_X, J]": "A[I_X, J]",
    "  A [ I_X ,J ] ": "A[I_X, J]",
    "bf16[B_X, D_YZ]{U_W}": "bf16[B_X, D_YZ]{U_W}",
    "A:bf16[I_{data,fsdp}, J=4096]": "A:bf16[I_{data,fsdp}, J=4096]",
    "[8192_X, K]": "[8192_X, K]",
    "A[]": "A[]",
    "A[I_data]": "A[I_data]",
    "A[B=1024_X]": "A[B=1024_X]",
    "A[B=4k_X]": "A[B=4000_X]",
    "W[e:x, d, f]": "W[e:x, d, f]",
    "A[I]{U_XY}": "A[I]{U_XY}",
    "A'[I']": "A'[I']",
    "A[I_X1Y2]": "A[I_X1Y2]",
}
NOT_ARRAYS = {
    "A[I_X, J_X]": "In 'A[I_X, J_X]' the mesh axis X is used twice; an axis can split an array only once.",
    "A[I_X]{U_X}": "In 'A[I_X]{U_X}' the mesh axis X is used twice; an axis can split an array only once.",
    "A[I, I]": "In 'A[I, I]' the dim I appears twice; a diagonal is not an einsum of the book's kind.",
    "A[I_x-y]": "In 'A[I_x-y]' the subscript '_x-y' is not mesh axes; write '_XY', '_data' or '_{data,fsdp}'.",
    "A[I_]": "In 'A[I_]' the subscript '_' is not mesh axes; write '_XY', '_data' or '_{data,fsdp}'.",
    "A[I_{X,}]": "In 'A[I_{X,}]' the axes '{X,}' are not names separated by commas, as in '_{data,fsdp}'.",
    "A[I": "'A[I' is not an array; write a name or dtype and its dims, such as 'A[I_X, J]' or 'bf16[B, 8192]'.",
    "": "'' is not an array; write a name or dtype and its dims, such as 'A[I_X, J]' or 'bf16[B, 8192]'.",
    "A[,]": "In 'A[,]' the dim '' is not a name or size with mesh axes, such as 'B', 'D_XY' or '8192_X'.",
    "A[I J]": "In 'A[I J]' the dim 'I J' is not a name or size with mesh axes, such as 'B', 'D_XY' or '8192_X'.",
    "A[I=0]": "In 'A[I=0]' the dim 'I=0' has size 0; a dim has at least one element.",
    "A[I]{X}": "In 'A[I]{X}' the braces hold 'X'; partial sums over X are written '{U_X}'.",
    "A:bf17[I]": "There is no dtype 'bf17'; did you mean 'bf16'?",
    "bf17[I]": "There is no dtype 'bf17'; did you mean 'bf16'?",
    "x" * 5000: "is 5000 characters long; 4000 are allowed.",
}
EINSUMS = {
    "A[I_X, J] @ B[J, K]": "A[I_X, J] · B[J, K] -> [I_X, K]",
    "A[I,J]·B[J,K]->C[I,K]": "A[I, J] · B[J, K] -> C[I, K]",
    "A[I,J] * B[J,K]": "A[I, J] · B[J, K] -> [I, K]",
    "A[I,J], B[J,K] → C[K,I]": "A[I, J] · B[J, K] -> C[K, I]",
    "A[I,J] @ B[J,K] @ C[K,L]": "A[I, J] · B[J, K] · C[K, L] -> [I, L]",
    "A[I_X, J] @ B[J, K_X]": "A[I_X, J] · B[J, K_X] -> [I_X, K]",
    "bf16[B,8192] @ bf16[8192,28672]": "bf16[B, I=8192] · bf16[I=8192, J=28672] -> bf16[B, J=28672]",
    "A[I]·B[J] -> C[I,J]": "A[I] · B[J] -> C[I, J]",
    "A[I_X] @ B[I_X] -> C[]": "A[I_X] · B[I_X] -> C[]",
}
NOT_EINSUMS = {
    "": "'' is not an einsum; write arrays joined by '@', such as 'A[I_X, J] @ B[J, K] -> C[I_X, K]'.",
    "A[I,J] @": "'A[I,J] @' is not an einsum; write arrays joined by '@'",
    "A[I,J] @ B[K,L]": "the last dim on the left, J, is not a dim of 'B[K, L]'; give the output with '->'.",
    "A[I,J] @ B[J,K] -> C[I,Z]": "the output has the dim Z, which no operand has.",
    "A[I] @ B[I] -> C[] -> D[]": "'A[I] @ B[I] -> C[] -> D[]' has two arrows; one output is allowed.",
    "A[I=4,J] @ B[J,I=8] -> C[I]": "In 'A[I=4,J] @ B[J,I=8] -> C[I]' the dim I has two sizes, 4 and 8.",
    "bf16[B,8192] @ bf16[4096,8]": "a dim of 8192 meets one of 4096; they must be equal to be summed.",
    "A[I,J] B[J,K]": "'A[I,J] B[J,K]' is not an array",
}
NOT_MESHES = {
    "X=4,": "In the mesh 'X=4,' the part '' is not an axis; write it as 'X=4'.",
    "X": "In the mesh 'X' the part 'X' is not an axis; write it as 'X=4'.",
    "4=X": "In the mesh '4=X' the part '4=X' is not an axis; write it as 'X=4'.",
    "X=0": "In the mesh 'X=0' the axis X has size 0; a mesh axis has at least one chip.",
    "X=4,X=2": "In the mesh 'X=4,X=2' the axis X appears twice.",
    "X=-1": "The size of mesh axis X is '-1', which is negative; write a count such as '4M'.",
}


@pytest.mark.parametrize(("text", "printed"), ARRAYS.items())
def test_arrays(text: str, printed: str) -> None:
    array = parse_array(text)
    assert str(array) == printed
    assert parse_array(printed) == array


@pytest.mark.parametrize(("text", "printed"), EINSUMS.items())
def test_einsums(text: str, printed: str) -> None:
    line = parse_einsum(text)
    assert str(line) == printed
    assert parse_einsum(printed) == line


@pytest.mark.parametrize(
    ("parse", "text", "sentence"),
    [(parse_array, text, sentence) for text, sentence in NOT_ARRAYS.items()]
    + [(parse_einsum, text, sentence) for text, sentence in NOT_EINSUMS.items()]
    + [(parse_mesh, text, sentence) for text, sentence in NOT_MESHES.items()],
)
def test_what_is_wrong_is_said(parse, text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="AIJX_[]{}U,=: 4@->", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_array, parse_einsum, parse_mesh):
        read, sentence = None, ""
        try:
            read = parse(text)
        except InputError as error:
            sentence = str(error)
        assert "\n" not in sentence
        if read is not None and parse is not parse_mesh:  # a mesh prints as a dict
            assert parse(str(read)) == read
