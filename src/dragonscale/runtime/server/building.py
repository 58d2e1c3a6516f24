"""An engine from an order: the model on its devices, as many pages as there is room for, every program compiled.

A model is a folder in Hugging Face's format (`config.json`, `*.safetensors`, `tokenizer.json`), or a name with weights
from elsewhere: another folder, checkpoints of our own trainer, or random ones made on the device, for benchmarks.
Weights are read one at a time when they are placed, so the host never holds the model: files are mapped, and a training
checkpoint is read weight by weight.
"""

import itertools
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.listener import Listener
from dragonscale.models import hub, load_model
from dragonscale.models.program import Program
from dragonscale.models.transformer import Transformer
from dragonscale.runtime.checkpoint import tensor_reader
from dragonscale.runtime.lora_folder import LoraStack, read_lora
from dragonscale.runtime.numerics import Numerics, numerics_of
from dragonscale.runtime.parameters import WeightReader, random_reader, weights_of
from dragonscale.runtime.safetensors import SafeTensors
from dragonscale.runtime.serve.constraints import GrammarReader
from dragonscale.runtime.serve.engine import ServingEngine
from dragonscale.runtime.serve.runner import ModelRunner
from dragonscale.runtime.serve.sampling import Sampler
from dragonscale.runtime.serve.speculation import DraftModel
from dragonscale.runtime.serve.steps import EngineLimits, shapes_for
from dragonscale.runtime.server.text import ModelText, load_text, plain_text
from dragonscale.runtime.server.wire import Tell, WorkerOrder
from dragonscale.runtime.xla import asked_words, is_full, keep_compiled, what_failed
from dragonscale.serving.engine.plan import ServingPlan, parse_serving_plan


@dataclass(frozen=True)
class LoadedModel:
    """A model that can be placed on devices: `read` gives its weights, `text` its tokenizer."""

    model: Transformer
    program: Program
    numerics: Numerics
    read: WeightReader
    text: ModelText


def open_model(
    name: str,
    weights: str = "",
    random: bool = False,
    tokenizer: str = "",
    listener: Listener | None = None,
    seed: int = 0,
    adapters: Sequence[tuple[str, str]] = (),
) -> LoadedModel:
    """A model by its folder or name. `weights` and `tokenizer` are folders that replace its own. `adapters`
    are LoRAs by name and folder. Nothing large is read yet; as it is, `listener` hears of every weight."""
    model, own = load_model(name), _folder(name)
    program = model.program()
    read = random_reader(program, seed=seed) if random else _reader(name, Path(weights) if weights else own, program)
    if adapters:
        stack = LoraStack(program, [read_lora(*one) for one in adapters])
        program, read = stack.adapted, stack.reader(read)
    places = [Path(one) for one in ([tokenizer] if tokenizer else [weights, own]) if one]
    found = next((one for one in places if (one / "tokenizer.json").is_file()), None)
    known = found is not None or tokenizer or not random
    text = load_text(found or places[0]) if known else plain_text(program.sections[0].dims["v"])
    return LoadedModel(model, program, numerics_of(name), _heard(read, program, listener), text)


def _folder(name: str) -> Path | None:
    """The folder that a name leads to: the folder itself, that of a config, or what the Hub's cache has."""
    path = Path(name)
    if path.exists():
        return path if path.is_dir() else path.parent
    repo = hub.hub_name(name)
    return hub.cached(repo) if repo is not None else None


def _reader(name: str, folder: Path | None, program: Program) -> WeightReader:
    if folder is None:
        ways = "give its folder, one with --load-weights, or --random"
        raise InputError(f"The model {shorten(name)} is known by name only; {ways}.")
    if not folder.is_dir():
        raise InputError(f"There is no folder {shorten(str(folder))} to read weights from.")
    if next(folder.glob("*.safetensors"), None) is None:
        from dragonscale.runtime.train.checkpoints import newest_checkpoint, trained_reader

        newest = newest_checkpoint(folder)
        if newest is not None:
            return trained_reader(newest, program)
    return tensor_reader(SafeTensors(folder), program)


def _heard(read: WeightReader, program: Program, listener: Listener | None) -> WeightReader:
    """The same, with word of how far it is."""
    if listener is None:
        return read
    total = sum(
        weight.shape[0] if weight.stacked else 1 for own in weights_of(program).values() for weight in own.values()
    )
    done = itertools.count(1)  # several threads may read

    def heard(section: str, name: str, layer: int) -> Any:
        listener.step(min(next(done), total), total)
        return read(section, name, layer)

    return heard


NGRAM, FORMATS = "ngram", ("weights", "kv", "compute", "wire")
RESERVE = 3e9
"""Bytes of a device beside weights, pages and what samples: activations of a step, what libraries take."""


def _devices(order: WorkerOrder, plan: ServingPlan) -> list[Any]:
    if order.cpu:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", order.cpu)
    keep_compiled()
    if not order.cpu and jax.default_backend() == "cpu" and os.environ.get("JAX_PLATFORMS") != "cpu":
        raise InputError("JAX finds no accelerator here; give --cpu 1 to serve on this machine's CPU.")
    devices = jax.devices()[: plan.chips]
    if len(devices) < plan.chips:
        raise Infeasible(f"The plan {plan} takes {plan.chips} devices, and there are {len(devices)}.")
    return devices


def build_engine(order: WorkerOrder, tell: Tell) -> tuple[ServingEngine, dict[str, Any]]:
    """The engine, and what there is to know of it."""
    begun, plan = time.perf_counter(), parse_serving_plan(order.plan)
    devices = _devices(order, plan)
    random, draft = not order.weights, order.draft if order.draft != NGRAM else ""
    loading, own = _Progress(tell, "loading", 1), (order.seed, order.adapters)
    loaded = open_model(order.model, order.weights, random, order.tokenizer, loading, *own)
    drafting = open_model(draft, order.draft_weights, not order.draft_weights, order.tokenizer) if draft else None
    sizes = order.page, order.sequences, order.tokens, order.length, order.draft_tokens, plan.data, len(order.adapters)
    limits = EngineLimits(2, *sizes)
    models = [_Placed(one, plan, devices, limits) for one in (loaded, drafting) if one is not None]
    vocab = loaded.program.sections[0].dims["v"]
    sampler = Sampler(limits, vocab, models[0].mesh, order.seed, weighed=drafting is not None)
    page_bytes = sum(one.page_bytes for one in models)
    pages = order.pages or _pages_that_fit(devices[0], order, page_bytes, sampler.bytes)
    limits = replace(limits, pages=pages)
    sampler.limits = limits
    runner, *others = (one.runner(limits) for one in models)
    drafter = DraftModel(others[0], sampler) if others else None
    placed, shapes = time.perf_counter(), shapes_for(limits)
    try:
        runner.compile(shapes, _Progress(tell, "compiling", 2 - order.lazy))
        if drafter is not None:
            drafter.compile(shapes)
        if not order.lazy:
            sampler.compile(shapes, _Progress(tell, "compiling", 2, part=1))
    except jax.errors.JaxRuntimeError as error:
        if not is_full(error):
            raise Infeasible(what_failed(error)) from error
        raise Infeasible(no_room_to_compile(devices[0], order, pages, pages * page_bytes, str(error))) from None
    grammars = grammar_reader(loaded.text, vocab)
    own = {"drafter": drafter, "prefixes": order.prefix_cache, "role": order.role}
    engine = ServingEngine(runner, sampler, limits, shapes, grammars=grammars, **own)
    if not order.lazy and devices[0].platform != "cpu":  # where nothing is loaded late, and a long step takes seconds
        engine.warm()
    known = weights_of(loaded.model.program()).values()
    facts = {
        "pages": pages,
        "page_bytes": models[0].page_bytes,
        "page": limits.page,
        "ranks": limits.ranks,
        "devices": plan.chips,
        "device_kind": devices[0].device_kind,
        "parameters": sum(math.prod(one.shape) for of in known for one in of.values()),
        "load_s": placed - begun,
        "compile_s": time.perf_counter() - placed,
        "programs": len(shapes),
    }
    return engine, facts


def grammar_reader(text: Any, vocab: int) -> GrammarReader | None:
    """None where a text has no end, or the tokenizer does not say which bytes a token stands for (no decoder): requests
    with a grammar are then refused, others served."""
    try:
        return GrammarReader(text.tokenizer.to_str(), vocab, text.ends) if text.ends else None
    except ValueError:
        return None


class _Placed:
    """A model with its weights on the devices, which the number of pages depends on."""

    def __init__(self, loaded: LoadedModel, plan: ServingPlan, devices: list[Any], limits: EngineLimits) -> None:
        self.dtype = jnp.float32 if plan.compute == "fp32" else jnp.bfloat16
        wide = {name: "bf16" for name in FORMATS if getattr(plan, name) == "fp32"}  # which the dtype says
        self.given = (loaded.program, loaded.numerics, replace(plan, **wide), devices)
        empty = ModelRunner(*self.given, None, limits, self.dtype)
        self.mesh, self.page_bytes = empty.mesh, empty.page_bytes
        check_weights(devices[0], plan, empty.placement.abstract())
        self.weights = jax.block_until_ready(empty.placement.put(loaded.read))

    def runner(self, limits: EngineLimits) -> ModelRunner:
        return ModelRunner(*self.given, self.weights, limits, self.dtype)


class _Progress(Listener):
    """How far loading is, or one of so many equal parts of compiling."""

    def __init__(self, tell: Tell, what: str, parts: int, part: int = 0) -> None:
        super().__init__()
        self.tell, self.what, self.parts, self.part = tell, what, parts, part

    def step(self, done: int, total: int) -> None:
        self.tell(self.what, self.part * total + done, self.parts * total)


def check_weights(device: Any, plan: ServingPlan, weights: Any) -> None:
    """Refuse weights that a device has no memory for, by their shapes, before one of them is read."""
    leaves = jax.tree.leaves(weights)
    takes = sum(math.prod(one.sharding.shard_shape(one.shape)) * one.dtype.itemsize for one in leaves)
    limit = (device.memory_stats() or {}).get("bytes_limit", math.inf)
    if takes > limit:
        raise Infeasible(
            f"The weights take {takes / 1e9:.1f} GB of each device under the plan {plan}, and {device.device_kind} "
            f"lets a program have {limit / 1e9:.1f} GB; split the model over more devices (tp{2 * plan.tensor}), or "
            "give --quantize int8."
        )


def no_room_to_compile(device: Any, order: WorkerOrder, pages: int, cached: float, text: str) -> str:
    """That steps have no memory to be compiled and run in, beside what lies there already."""
    stats = device.memory_stats() or {}
    beside = stats.get("bytes_in_use", 0) - cached
    return (
        f"{device.device_kind} has no memory left to compile and run steps of {order.tokens:,} "
        f"tokens{asked_words(text)}: weights and what samples take {beside / 1e9:.1f} GB, {pages:,} pages of KV cache "
        f"{cached / 1e9:.1f} GB; give a smaller --memory-fraction (it is {order.memory:g}) or --pages, a smaller "
        "--token-budget, or split the model over more devices."
    )


def _pages_that_fit(device: Any, order: WorkerOrder, page_bytes: int, sampler: int) -> int:
    """Pages of a rank, beside what is there already."""
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        raise Infeasible(f"{device.device_kind} does not say how much memory it has; give --pages.")
    pool = float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", 0.75)) if device.platform == "gpu" else 1.0
    limit = stats["bytes_limit"] * min(order.memory / pool, 1.0)  # on a GPU, XLA's pool is a part of its memory
    free = limit - stats["bytes_in_use"] - sampler - RESERVE
    pages = int(free // page_bytes)
    if pages * order.page < order.length:
        raise Infeasible(
            f"Beside the weights there is room for {max(pages, 0) * order.page:,} tokens of KV cache on a device, "
            "fewer than one "
            f"sequence of {order.length:,} has; split the model over more devices, or give a shorter --length."
        )
    return pages
