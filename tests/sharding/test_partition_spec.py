"""PartitionSpecs to the notation and back."""

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.notation import parse_array
from dragonscale.physics.sharding.partition_spec import from_partition_spec, to_partition_spec
from tests.sharding.random_cases import draw_cases

P = pytest.importorskip("jax.sharding").PartitionSpec

SPECS = {
    "A[I_X, J]": P("X", None),
    "A[I, J]": P(None, None),
    "A[I_XY, J_Z]": P(("X", "Y"), "Z"),
    "A[I_{data,fsdp}]": P(("data", "fsdp")),
    "A[]": P(),
    "A[I_X]{U_YZ}": P("X", unreduced={"Y", "Z"}),
}


@pytest.mark.parametrize(("text", "spec"), SPECS.items())
def test_both_ways(text: str, spec: object) -> None:
    array = parse_array(text)
    assert to_partition_spec(array) == spec
    assert from_partition_spec(spec, array.names, array.dtype, array.name) == array  # pyright: ignore


def test_random_layouts_round_trip() -> None:
    for case in draw_cases(100, seed=11):
        for array in (*case.line.operands, case.line.output):
            spec = to_partition_spec(array)
            assert from_partition_spec(spec, array.names, array.dtype, array.name) == array


def test_dims_that_a_spec_leaves_out_are_whole() -> None:
    assert str(from_partition_spec(P("X"), "IJK", "bf16", "A")) == "A:bf16[I_X, J, K]"


@pytest.mark.parametrize(
    ("spec", "names", "sentence"),
    [
        (P("X", "Y"), "I", "P('X', 'Y') splits 2 dims and only 1 are named; name every dim."),
        (P("X", P.UNCONSTRAINED), "IJ", "leaves the dim J unconstrained; say its axes, or None for a whole dim."),
        (P("X", reduced={"Y"}), "IJ", "marks axes as reduced, which the notation does not write; drop `reduced`."),
        (("X", None), "IJ", "('X', None) is not a PartitionSpec; write P('X', None) or use parse_array for text."),
        (P("X", None), "II", "the dim I appears twice; it can only once."),
    ],
)
def test_what_cannot_be_converted_is_said(spec: object, names: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        from_partition_spec(spec, names)  # pyright: ignore
    assert sentence in str(error.value)
