"""Packed steps over pages give what the forward pass gives, for every kind of attention, format and sharding."""

from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.models.cache import cache_bytes  # noqa: E402
from dragonscale.runtime.serve.steps import StepShape  # noqa: E402
from tests.runtime.serve.packing import PackedRun  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

slow = pytest.mark.slow
SMALL = {"num_hidden_layers": 2}
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


@pytest.mark.parametrize("name", ["gemma2", "deepseek-v3", "gpt-oss"])
def test_packed_steps_are_the_forward_pass(name: str) -> None:
    _through_one_shape(PackedRun(MODELS[name]))


def test_a_mesh_gives_what_one_chip_gives(eight: list[Any]) -> None:
    _through_one_shape(PackedRun(MODELS["qwen3-moe"], "tensor=2,data=2,expert=4", eight))


@slow
@pytest.mark.parametrize("name", list(MODELS))
def test_every_kind_of_step_of_every_model(name: str) -> None:
    _through(PackedRun(MODELS[name]))


@slow
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("qwen3-moe", "tensor=2,data=2,expert=4"), ("qwen3-moe", "data=4,expert=4"), ("llama", "tensor=4"),
        ("qwen2", "tensor=2,data=2"), ("deepseek-v3", "tensor=2,data=2"), ("deepseek-v3", "tensor=2,expert=2"),
        ("gpt-oss", "tensor=2,expert=2"), ("mixtral", "tensor=4,expert=2"),
    ],
)  # fmt: skip
def test_every_kind_of_step_on_meshes(name: str, plan: str, eight: list[Any]) -> None:
    _through(PackedRun(MODELS[name], plan, eight))


@pytest.mark.parametrize(
    "name", ["llama", *(pytest.param(name, marks=slow) for name in ("deepseek-v3", "gpt-oss", "qwen3-moe"))]
)
def test_int8_is_near_and_the_same_model_however_it_is_packed(name: str) -> None:
    plan = "tensor=1,weights=int8,kv=int8"
    whole = PackedRun(MODELS[name], plan)
    at_once, wanted = whole.step(FRESH, [[]], [[(0, 13)]])
    pieces = PackedRun(MODELS[name], plan)
    pieces.step(MIXED, [[]], [[(1, 4), (0, 5)]])
    pieces.step(MIXED, [[(1, 1)]], [[(0, 7)]])
    found, _ = pieces.step(MIXED, [[(1, 1), (0, 1)]], [[]])
    assert numpy.abs(found[1] - at_once[0]).max() < 1e-4
    error = numpy.linalg.norm(at_once - wanted) / numpy.linalg.norm(wanted)
    assert 1e-4 < error < 0.1
    keys = whole.runner.cache[0].keys
    assert keys.dtype == numpy.int8


def test_int8_on_a_mesh_is_that_of_one_chip(eight: list[Any]) -> None:
    steps = (MIXED, [[]], [[(0, 13)]])
    one, _ = PackedRun(MODELS["qwen2"], "tensor=1,weights=int8,kv=int8").step(*steps)
    four, _ = PackedRun(MODELS["qwen2"], "tensor=4,weights=int8,kv=int8", eight).step(*steps)
    assert numpy.abs(one - four).max() < 1e-4


def test_pages_hidden_states_and_what_is_not_compiled() -> None:
    run = PackedRun(MODELS["llama"])
    runner, shape = run.runner, StepShape(0, 1, 1, 16)
    logits, _ = run.step(shape, [[]], [[(0, 13)]])
    assert runner.hidden is not None
    head = run.params["head"]["W_head"]
    assert numpy.abs(numpy.asarray(runner.hidden)[0] @ head.T - logits).max() < 1e-3
    # A page holds what the planner counts: two layers of keys and values of two heads, in fp32 here.
    assert runner.page_bytes == sum(cache_bytes(run.program.sections, run.page, "fp32").values())
    # Pages that go to another engine, to other places there, hold the sequence: the next token is as if nothing had happened.
    other = PackedRun(MODELS["llama"])
    runner.compile([])
    other.runner.compile([])
    other.tables = other.tables[:, ::-1]
    used = -(-13 // run.page)
    other.runner.write_pages(0, list(other.tables[0, 0, :used]), runner.read_pages(0, list(run.tables[0, 0, :used])))
    other.done[0, 0] = 13
    _same(other.step(shape, [[]], [[(0, 1)]]))
    with pytest.raises(AssertionError, match="no step was compiled for"):
        other.runner.run(other.batch(StepShape(1), [[(0, 1)]], [[]]), other.last)


def test_a_row_takes_the_token_that_it_sampled_last() -> None:
    run = PackedRun(MODELS["llama"])
    shape = StepShape(2, 1, 1, 8)
    run.step(shape, [[]], [[(1, 6)]])
    batch = run.batch(shape, [[(1, 1)]], [[]])
    batch.from_last[0, 0], batch.tokens[0, 0] = True, 0
    last = numpy.zeros((1, run.limits.sequences + 1), numpy.int32)
    last[0, 1] = run.tokens[0, 1, 6]
    found = numpy.asarray(run.runner.run(batch, jax.device_put(last, run.runner.by_rank)))[0, :1]
    _same((found, run.wanted[0, 1, 6:7]))


def test_plans_and_limits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="kv in bf16 or int8; the plan says fp8"):
        PackedRun(MODELS["llama"], "tensor=1,kv=fp8")
