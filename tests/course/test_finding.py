"""The search by words over functions and problems, and closed forms that readers of the book looked for."""

import pytest

import dragonscale as ds
from dragonscale.course.closed_forms import kv_cache, matmul_flops, mean_hops
from dragonscale.course.finding import find_by_words
from dragonscale.errors import InputError
from dragonscale.faces.cli import main


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("mean hops", "mean_hops"),
        ("switch bytes", "switch_traffic"),
        ("reduce scatter", "reduce_scatter"),
        ("kv cache", "kv_cache"),
        ("exact matmul flops", "matmul_flops"),
        ("mean over devices", "jax.mean-over-devices"),
    ],
)
def test_words_find_functions_and_problems(words: str, name: str) -> None:
    assert name in [match.name for match in find_by_words(words)][:3]


def test_what_nothing_is_about_is_said() -> None:
    with pytest.raises(InputError, match="No function and no problem is about"):
        ds.calc(find="zebra")
    with pytest.raises(InputError, match="Give an expression"):
        ds.calc("")


def test_mean_hops_is_the_mean_over_all_pairs() -> None:
    for size in (2, 4, 16):
        ring = [min(abs(i - j), size - abs(i - j)) for i in range(size) for j in range(size)]
        line = [abs(i - j) for i in range(size) for j in range(size)]
        assert mean_hops(size) == sum(ring) / size**2
        assert mean_hops(size, closed=False) == pytest.approx(sum(line) / size**2)


def test_a_matmul_counts_one_sum_less_than_products() -> None:
    assert matmul_flops(8, 16, 4) == 8 * 4 * (16 + 15)


def test_a_cache_has_elements_whatever_its_format() -> None:
    assert kv_cache(2, 3, 4, 5, dtype="int8").elements == kv_cache(2, 3, 4, 5).elements == 2 * 2 * 3 * 4 * 5


def test_training_flops_of_one_layer_are_three_times_its_forward_pass() -> None:
    lines = {line.name: line.value_si for line in ds.explain("model", "llama3-8b").lines}
    of_layer, of_all = lines["block: mlp training FLOPs, one layer"], lines["block: mlp FLOPs, one sequence"]
    assert of_layer
    assert of_all
    assert of_layer == pytest.approx(3 * of_all / 32)


def test_ways_beyond_those_shown_are_counted_and_shown_when_asked_for() -> None:
    expression = "A[I_X, J] @ B[J, K_Y] -> C[I, K]"
    few = ds.shard(expression).forward[0]
    assert few.more_ways > 0
    every = ds.shard(expression, alternatives=len(few.strategies) + few.more_ways).forward[0]
    assert every.more_ways == 0
    assert len(every.strategies) == len(few.strategies) + few.more_ways


@pytest.mark.parametrize(("array", "noted"), [("bf16[8192, 32768]", True), ("bf16[8192_X, 32768_Y]", False)])
def test_an_array_that_names_no_axes_is_read_with_a_note(
    array: str, noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collective", "all_gather", array, "--mesh", "X=32,Y=8", "--axis", "X", "--on", "v5p"]) == 0
    assert ("a group has 1/8 of it" in capsys.readouterr().err) is noted
