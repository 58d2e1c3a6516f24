"""Queries and the written cache of decoding rows by one kernel, interpreted on the CPU, against the model's lines."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.runtime.expert_exchange import Mixing  # noqa: E402
from dragonscale.runtime.lines import SectionPass, run_section  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.packed_weights import served  # noqa: E402
from dragonscale.runtime.parameters import random_reader  # noqa: E402
from dragonscale.runtime.serve.gpu_fused import fused  # noqa: E402
from dragonscale.runtime.serve.gpu_heads import prepared_heads  # noqa: E402
from dragonscale.runtime.serve.gpu_matmul import MatmulTile, few_tokens  # noqa: E402
from dragonscale.runtime.serve.paged_attention import PagedKeys, StepRows  # noqa: E402
from dragonscale.runtime.serve.runner import ModelRunner  # noqa: E402
from dragonscale.runtime.serve.steps import EngineLimits, StepShape, empty_batch  # noqa: E402
from dragonscale.serving.engine.plan import parse_serving_plan  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

LIMITS = EngineLimits(pages=6, page=4, sequences=3, tokens=16, length=16)
BIASED = {**CONFIGS["qwen2"], "num_hidden_layers": 1}
MODELS: dict[str, dict[str, Any]] = {
    "qwen2": BIASED,
    "qwen3": {**CONFIGS["qwen3"], "num_hidden_layers": 1},
}


class Attending:
    """A layer's cache that keeps what attention was given, and what the kernel makes of the same."""

    def __init__(self, paged: PagedKeys, rows: StepRows) -> None:
        self.paged, self.rows = paged, rows

    def write(self, name: str, value: jax.Array) -> jax.Array:  # noqa: ARG002
        return value

    def attend(self, query: jax.Array, key: jax.Array, value: jax.Array, how: Any) -> jax.Array:  # noqa: ARG002
        self.query, self.written = query[0], self.paged.written(self.rows.writes, key[0], value[0])
        self.made = prepared_heads(self.run, self.paged, self.rows, interpret=True)
        return query[..., : value.shape[-1]]


@dataclass(frozen=True)
class Attended:
    """What the kernel made, what the lines gave to attention, and what the layer left behind."""

    made: tuple[jax.Array, PagedKeys] | None
    query: jax.Array
    written: PagedKeys
    tensors: dict[str, jax.Array]


def attended(config: dict[str, Any], plan: str = "tensor=1", fused: Any = None) -> Attended:
    program, numerics = load_config(config).program(), read_numerics(config)
    parsed, shape = parse_serving_plan(plan), StepShape(3)
    read = random_reader(program, seed=1)

    def larger(section: str, name: str, layer: int) -> Any:  # so that biases and norms are not what they begin as
        value = read(section, name, layer)
        return value + 0.5 * numpy.random.default_rng(len(name)).normal(size=value.shape).astype(value.dtype)

    runner = ModelRunner(program, numerics, parsed, jax.devices()[:1], larger, LIMITS)
    batch = empty_batch(shape, 1, LIMITS.width, LIMITS.sequences)
    batch.positions[0, :3], batch.writes[0, :3] = [9, 0, 5], [21, 4, 9]
    names = ("tokens", "from_last", "positions", "writes", "tables", "lengths", "slots", "starts", "reads", "adapters")
    rows = StepRows(**{name: jnp.asarray(getattr(batch, name)[0]) for name in names}, shape=shape, page=LIMITS.page)
    residual = jnp.asarray(
        numpy.random.default_rng(3).normal(size=(1, shape.packed, config["hidden_size"])), jnp.bfloat16
    )
    section = served(program)[program.order[0]]
    setting = replace(runner.setting, multiply=partial(few_tokens, interpret=True))
    setting = replace(setting, fused=fused) if fused else setting

    @jax.jit  # a program at once, as it is served: line by line each would be compiled alone
    def passed(paged: PagedKeys, rows: StepRows, weights: Any, residual: jax.Array) -> tuple[Any, ...]:
        layer = Attending(paged, rows)
        layer.run = SectionPass(section, setting, rows.positions[None], weights, stored=layer, tensors={"R": residual})
        run_section(layer.run)
        tensors = {name: layer.run.tensors[name] for name in ("X", "R")}
        return layer.made, layer.query, layer.written, tensors

    paged = jax.tree.map(jnp.zeros_like, runner.cache[0])
    return Attended(*passed(paged, rows, runner.weights["layers"][0], residual))


@pytest.mark.parametrize("name", list(MODELS))
def test_one_kernel_makes_queries_and_writes_the_cache(name: str) -> None:
    layer = attended(MODELS[name])
    assert layer.made is not None
    query, paged = layer.made
    made, wanted = (query, paged.keys, paged.values), (layer.query, layer.written.keys, layer.written.values)
    for found, right in zip(made, wanted, strict=True):
        wide = (numpy.asarray(each, numpy.float32) for each in (found, right))
        numpy.testing.assert_allclose(*wide, atol=0.03, rtol=0.02)
    assert float(jnp.abs(paged.keys).sum()) > 1


@pytest.mark.parametrize(
    ("config", "plan"),
    [
        (BIASED, "tensor=1,kv=int8"),
        ({**CONFIGS["llama"], "num_hidden_layers": 1, "partial_rotary_factor": 0.5}, "tensor=1"),
        ({**CONFIGS["deepseek-v3"], "num_hidden_layers": 1}, "tensor=1"),
    ],
    ids=["int8 cache", "half a head turns", "latents"],
)
def test_other_layers_are_left_to_the_lines(config: dict[str, Any], plan: str) -> None:
    assert attended(config, plan).made is None


SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "head_dim": 32, "intermediate_size": 128}
STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "dense": ({**CONFIGS["qwen3"], **SIZES}, "tensor=1"),
    "dense in int8": ({**CONFIGS["gemma2"], **SIZES}, "tensor=1,weights=int8"),
    "experts": ({**CONFIGS["qwen3-moe"], **SIZES, "moe_intermediate_size": 64}, "tensor=1"),
    "experts in int8": ({**CONFIGS["mixtral"], **SIZES}, "tensor=1,weights=int8"),
}


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("dense", 1),
        pytest.param("dense in int8", 3, marks=pytest.mark.slow),
        pytest.param("experts", 1, marks=pytest.mark.slow),
        ("experts in int8", 3),
    ],
)
def test_lines_computed_with_what_is_before_them_give_what_lines_give(
    name: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a step of two layers: sums and norms, also over the border of layers, and what gates let through."""
    tiles = "dragonscale.runtime.serve.gpu_matmul.tile_of"  # as of large matrices: those that make much are not cut
    monkeypatch.setattr(tiles, lambda m, k, n, narrow=False: MatmulTile(128, 64, 2 if n < 256 else 1))  # noqa: ARG005
    config, plan = STEPS[name]
    program, numerics = load_config(config).program(), read_numerics(config)
    seen: list[str] = []

    def noted(op: Any, run: SectionPass) -> bool:
        if done := fused(op, run, interpret=True):
            seen.append(op.function)
        return done

    def logits(kernels: bool) -> numpy.ndarray:
        read = random_reader(program, seed=1)
        runner = ModelRunner(program, numerics, parse_serving_plan(plan), jax.devices()[:1], read, LIMITS)
        if kernels:
            multiply = partial(few_tokens, interpret=True)
            runner.setting = replace(runner.setting, multiply=multiply, fused=noted, mixing=Mixing(few=64))
        batch = empty_batch(StepShape(tokens), 1, LIMITS.width, LIMITS.sequences)
        batch.tokens[0], batch.writes[0], batch.lengths[0] = numpy.arange(tokens) + 5, numpy.arange(tokens) + 4, 1
        batch.tables[0, :, 0] = 1
        runner.compile([batch.shape], moves=False)
        last = jax.device_put(numpy.zeros((1, LIMITS.sequences + 1), numpy.int32), runner.by_rank)
        return numpy.asarray(runner.run(batch, last), numpy.float32)

    found, wanted = logits(kernels=True), logits(kernels=False)
    assert numpy.linalg.norm(found - wanted) < 0.03 * numpy.linalg.norm(wanted)
    between = [] if "int8" in name and "experts" not in name else ["norm"]  # Gemma norms what it adds
    assert seen == [*between, "act", *between, *between, "act"]
