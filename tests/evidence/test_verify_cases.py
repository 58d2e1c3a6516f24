"""The book's sharded programs on both compilers: what they send is what the algebra says, or another
way that it lists."""

import importlib.util
import math
from collections import Counter

import pytest

pytest.importorskip("jax")

from dragonscale.errors import InputError
from tests.evidence.book_programs.cases import CASES, LAYER, case_named
from tests.evidence.book_programs.predictions import ways
from tests.evidence.book_programs.verdicts import Judged, compile_cases, judge, table
from tests.evidence.xla_cases import FOLDER, ON_TPUS, TABLE, in_order, kept_text, path_of

CHOSEN_OTHERWISE = {"case 2, square", "case 2, wide", "2D weight-stationary"}
"""Where the partitioners of both compilers choose another way than the algebra, which goes by time."""
CAST = {"expert all-to-all", "expert all-to-all, trained", "ring attention, trained"}
"""Where the GPU compiler casts fp32 that will be cast anyway before it travels."""


@pytest.fixture(scope="module")
def on_tpus() -> list[Judged]:
    return [judge(case, piece, kept_text(case, piece)) for case, piece in ON_TPUS]


@pytest.fixture(scope="module")
def on_gpus() -> list[Judged]:
    pytest.importorskip("jax_cuda12_plugin", reason="the GPU compiler's wheel is not installed")
    return [judge(*each) for each in compile_cases("gpu")]


def verdicts(judged: list[Judged]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in judged:
        found.setdefault(each.verdict, set()).add(each.case.name)
    return found


@pytest.mark.slow
def test_every_case_on_gpus(on_gpus: list[Judged]) -> None:
    assert {each.case.name for each in on_gpus} == {case.name for case in CASES}
    found = verdicts(on_gpus)
    assert set(found) == {"as predicted", "another way"}
    assert found["another way"] == CHOSEN_OTHERWISE | CAST
    assert all("cast" in each.why for each in on_gpus if each.case.name in CAST)


def test_every_case_on_tpus(on_tpus: list[Judged]) -> None:
    assert {each.case.name for each in on_tpus} == {case.name for case in CASES}
    found = verdicts(on_tpus)
    assert found["another way"] == CHOSEN_OTHERWISE
    assert found["padded"] == {"case 3, scattered rows", "fsdp+tp backward"}
    assert found.get("reduced whole", set()) <= {"megatron attention, fsdp"}
    assert "differs" not in found


PRODUCTS = {"forward": 2, "backward": 4, "ring": 2, "ring trained": 7}
"""Backward, two products for each one forward; a ring finds its scores once more."""


def check_flops(judged: list[Judged]) -> None:
    """Two FLOPs for each number of each product, over all chips."""
    for each in judged:
        if each.case.form in PRODUCTS:
            dims = ("S", "S", "N", "H") if each.case.form.startswith("ring") else ("B", "D", "F")
            product = 2.0 * math.prod(each.case.sizes[dim] for dim in dims)
            chips = math.prod(each.case.slices[each.piece].values())
            assert each.compiled.flops == PRODUCTS[each.case.form] * product / chips


@pytest.mark.slow
def test_layers_do_the_work_of_their_products_on_gpus(on_gpus: list[Judged]) -> None:
    check_flops(on_gpus)


def test_layers_do_the_work_of_their_products_on_tpus(on_tpus: list[Judged]) -> None:
    check_flops(on_tpus)


@pytest.mark.slow
def test_the_table_in_the_docs_is_what_was_found(on_gpus: list[Judged], on_tpus: list[Judged]) -> None:
    assert TABLE.read_text(encoding="utf-8") == table(in_order([*on_gpus, *on_tpus]))


def test_the_books_eleven_collectives() -> None:
    """Mixed FSDP and tensor parallelism, as the book lists them."""
    moves = [
        move for name in ("fsdp+tp forward", "fsdp+tp backward") for move in ways(case_named(name), "v5e:4x4")[0].moves
    ]
    assert Counter(move.kind for move in moves) == {"all_gather": 7, "reduce_scatter": 4}
    rows, columns = LAYER["B"] // 4, LAYER["D"]
    assert moves[0].wire_bytes == 2 * rows * columns * 3 / 4  # In, gathered over Y


def test_the_quickest_way_of_decoding_moves_no_weight() -> None:
    best = ways(case_named("2D weight-stationary"), "v5e:4x4")[0]
    assert {move.what for move in best.moves} == {"In", "Tmp", "Out"}


def test_programs_of_other_cases_differ() -> None:
    """The comparison can fail: what was compiled for one case is not another's."""
    for name, other in (("case 3", "case 3, reduce-scatter"), ("fsdp forward", "dp backward"), ("gather", "exchange")):
        verdict = judge(case_named(name), "v5p:2x2x1", kept_text(case_named(other), "v5p:2x2x1"))
        assert verdict.verdict == "differs"
    text = kept_text(case_named("case 3, scattered rows"), "v5p:2x2x1")
    larger = text.replace("[8256,", "[9216,").replace(
        "[2064,", "[2304,"
    )  # scattered blocks that are filled up by an eighth
    assert larger != text
    assert judge(case_named("case 3, scattered rows"), "v5p:2x2x1", larger).verdict == "differs"


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(InputError, match="case 3"):
        case_named("case 33")


def test_kept_texts_are_small_and_hold_no_paths() -> None:
    assert {path.name for path in FOLDER.glob("*.hlo.gz")} == {path_of(*each).name for each in ON_TPUS}
    for case, piece in ON_TPUS:
        assert path_of(case, piece).stat().st_size < 40_000
        assert '"/' not in kept_text(case, piece)


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="the TPU compiler's wheel is not installed")
def test_the_tpu_compiler_makes_the_same_today(on_tpus: list[Judged]) -> None:
    live = [judge(*each) for each in compile_cases("tpu")]
    assert table(in_order(live)) == table(in_order(on_tpus))
