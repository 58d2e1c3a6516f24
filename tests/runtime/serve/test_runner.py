"""Packed steps over pages give what the forward pass gives, for every kind of attention, format and sharding."""

from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.models.count import cache_bytes  # noqa: E402
from dragonscale.runtime.serve.steps import StepShape  # noqa: E402
from tests.runtime.serve.packing import PackedRun  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

slow = pytest.mark.slow
SMALL = {"num_hidden_layers": 2}
ONE = {"num_hidden_layers": 1}
MODELS: dict[str, dict[str, Any]] = {name: {**config, **SMALL} for name, config in CONFIGS.items()} | {
    "gpt-oss": {**CONFIGS["mixtral"], **SMALL, "model_type": "gpt_oss", "sliding_window": 8, "head_dim": 16},
}


FRESH, MIXED, DRAFTED = StepShape(0, 1, 1, 16, True), StepShape(4, 1, 3, 16), StepShape(4, 3)


def _same(pair: tuple[Any, Any], tolerance: float = 1e-4) -> None:
    found, wanted = pair
    assert numpy.abs(found - wanted).max() < tolerance
    assert (found.argmax(-1) == wanted.argmax(-1)).all()


def _through(run: PackedRun) -> None:
    """A prompt of its own, then chunks in odd sizes beside decoding rows, drafts of three, rows that are missing."""
    ranks = run.limits.ranks

    def each(rows: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        # Ranks are not alike: the last one has fewer rows.
        return [rows if rank < ranks - 1 or ranks == 1 else rows[:-1] for rank in range(ranks)]

    _same(run.step(FRESH, [[]] * ranks, [[(0, 11)]] * ranks))
    _same(run.step(MIXED, [[(0, 1)]] * ranks, each([(1, 5), (2, 9)])))
    _same(run.step(MIXED, each([(0, 1), (1, 1)]), each([(2, 7), (3, 3)]) if ranks == 1 else [[(2, 7)]] * ranks))
    _same(run.step(DRAFTED, each([(0, 3), (1, 3), (2, 3)]), [[]] * ranks))


def _through_one_shape(run: PackedRun) -> None:
    """The same in short: chunks, then decoding rows of two tokens beside other chunks."""
    shape, ranks = StepShape(2, 2, 3, 16), run.limits.ranks
    _same(run.step(shape, [[]] * ranks, [[(0, 5), (1, 11)], *[[(0, 7)]] * (ranks - 1)]))
    _same(run.step(shape, [[(0, 2), (1, 2)], *[[(0, 2)]] * (ranks - 1)], [[(2, 9), (3, 3)], *[[(1, 4)]] * (ranks - 1)]))


@pytest.mark.parametrize(("name", "layers"), [("gemma2", SMALL), pytest.param("deepseek-v3", ONE, marks=slow)])
def test_packed_steps_are_the_forward_pass(name: str, layers: dict[str, int]) -> None:
    _through_one_shape(PackedRun(MODELS[name] | layers))


def test_a_mesh_gives_what_one_chip_gives(eight: list[Any]) -> None:
    _through_one_shape(PackedRun(MODELS["qwen3-moe"] | ONE, "tensor=2,data=2,expert=4", eight))


@slow
@pytest.mark.parametrize("name", list(MODELS))
def test_every_kind_of_step_of_every_model(name: str) -> None:
    _through(PackedRun(MODELS[name]))


@slow
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("qwen3-moe", "tensor=2,data=2,expert=4"),
        ("qwen3-moe", "data=4,expert=4"),
        ("llama", "tensor=4"),
        ("qwen2", "tensor=2,data=2"),
        ("deepseek-v3", "tensor=2,data=2"),
        ("deepseek-v3", "tensor=2,expert=2"),
        ("gpt-oss", "tensor=2,expert=2"),
        ("mixtral", "tensor=4,expert=2"),
    ],
)
def test_every_kind_of_step_on_meshes(name: str, plan: str, eight: list[Any]) -> None:
    _through(PackedRun(MODELS[name], plan, eight))


@pytest.mark.parametrize(
    "name", ["llama", *(pytest.param(name, marks=slow) for name in ("deepseek-v3", "gpt-oss", "qwen3-moe"))]
)
def test_int8_is_near_and_the_same_model_however_it_is_packed(name: str) -> None:
    first, layers = (MIXED, ONE) if name == "llama" else (FRESH, SMALL)
    run = PackedRun(MODELS[name] | layers, "tensor=1,weights=int8,kv=int8")
    run.tokens[0, 1] = run.tokens[0, 0]
    at_once, wanted = run.step(first, [[]], [[(0, 13)]])
    run.step(MIXED, [[]], [[(2, 4), (1, 5)]])
    run.step(MIXED, [[(2, 1)]], [[(1, 7)]])
    found, _ = run.step(MIXED, [[(2, 1), (1, 1)]], [[]])
    assert numpy.abs(found[1] - at_once[0]).max() < 1e-4
    assert 1e-4 < numpy.linalg.norm(at_once - wanted) / numpy.linalg.norm(wanted) < 0.03
    assert run.runner.cache[0].keys.dtype == numpy.int8


@slow
def test_int8_on_a_mesh_is_that_of_one_chip(eight: list[Any]) -> None:
    steps = (MIXED, [[]], [[(0, 13)]])
    one, _ = PackedRun(MODELS["qwen2"], "tensor=1,weights=int8,kv=int8").step(*steps)
    four, _ = PackedRun(MODELS["qwen2"], "tensor=4,weights=int8,kv=int8", eight).step(*steps)
    assert numpy.abs(one - four).max() < 1e-4


def test_pages_hidden_states_last_tokens_and_what_is_not_compiled() -> None:
    run = PackedRun(MODELS["llama"] | ONE)
    runner, shape = run.runner, StepShape(1, 1, 1, 16)
    logits, _ = run.step(shape, [[]], [[(0, 13)]])
    assert runner.hidden is not None
    assert numpy.abs(numpy.asarray(runner.hidden)[0, 1:] @ run.params["head"]["W_head"].T - logits).max() < 1e-3
    # A page holds what the planner counts: keys and values of two heads, in fp32 here.
    assert runner.page_bytes == sum(cache_bytes(run.program.sections, run.page, "fp32").values())
    # Pages that go elsewhere hold the sequence: with its next token it goes on as if nothing had happened.
    runner.compile([])
    used = -(-13 // run.page)
    contents = runner.read_pages(0, list(run.tables[0, 0, :used]))
    run.tables[0, 0] = run.tables[0, 1][::-1]
    runner.write_pages(0, list(run.tables[0, 0, :used]), contents)
    # The row takes the token that its slot sampled last, whatever stands in the batch.
    batch = run.batch(shape, [[(0, 1)]], [[]])
    batch.from_last[0, 0], batch.tokens[0, 0], batch.slots[0, 0] = True, 0, 2
    last = numpy.zeros((1, run.limits.sequences + 1), numpy.int32)
    last[0, 2] = run.tokens[0, 0, 13]
    found = numpy.asarray(runner.run(batch, jax.device_put(last, runner.by_rank)))[0, :1]
    _same((found, run.wanted[0, 0, 13:14]))
    with pytest.raises(AssertionError, match="no step was compiled for"):
        runner.run(run.batch(StepShape(1), [[(0, 1)]], [[]]), run.last)


def test_the_last_layer_computes_the_tokens_alone_whose_logits_are_wanted() -> None:
    run = PackedRun(MODELS["llama"] | ONE)
    wide = 2 * run.config["intermediate_size"]
    function, arguments = run.runner.program_of(FRESH)
    text = function.lower(*arguments).as_text()
    assert f"tensor<1x8x{wide}x" in text
    assert f"tensor<1x16x{wide}x" not in text


def test_plans_and_limits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="kv in bf16 or int8; the plan says fp8"):
        PackedRun(MODELS["llama"], "tensor=1,kv=fp8")
