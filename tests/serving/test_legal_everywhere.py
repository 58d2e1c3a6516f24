"""Nothing that engines refuse is offered or recommended, over the catalogue of models and chips.

The rules are written down here a second time, as an engine's start-up checks have them, so that the table's reader is
not its own witness.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dragonscale.commands.serve.serve_question import ServeQuestion, read_question
from dragonscale.models import load_model, model_names
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, Torus, chip_names, load_chip
from dragonscale.serving.advice.refusals import possible
from dragonscale.serving.advice.search import ranked_by_format, search
from dragonscale.serving.engine.checkpoint import legal_formats
from dragonscale.serving.engine.engine import engines
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.legality import runs_on
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.space import lots, slices_of

MODELS = sorted(model_names())
SOME = [
    "deepseek-v3",
    "gpt-oss-120b",
    "qwen3-235b-a22b",
    "phi-4",
    "llama3-70b",
    "kimi-k2.5",
    "minimax-m2.5",
    "falcon-7b",
]
FAMILY = {
    "nvidia": ("vllm", "vllm-ep", "sglang", "sglang-ep", "trtllm", "trtllm-ep", "trtllm-bench"),
    "amd": ("vllm", "vllm-ep", "sglang", "sglang-ep"),
    "tpu": ("vllm-tpu", "sgl-jax"),
}
TODAY = {name for names in FAMILY.values() for name in names}


def family(chip: Chip) -> str:
    return "tpu" if isinstance(chip.network, Torus) else "amd" if chip.name.startswith("mi") else "nvidia"


def broken(engine: str, piece: Slice, model: Transformer, plan: ServingPlan) -> Iterator[str]:
    """Start-up checks of engines that a plan fails."""
    chip, tensor = piece.chip, plan.tensor
    split = tensor * chip.devices if tensor > 1 else 1  # a TPU7x is two devices
    if engine in TODAY and engine not in FAMILY[family(chip)]:
        yield f"{engine} on {chip.name}"
    if (
        chip.format(plan.compute.removesuffix("_block")) != "native"
        or not chip.format(plan.weights)
        or not chip.format(plan.kv)
    ):
        yield f"{chip.name} without {plan.weights}/{plan.compute}/{plan.kv}"
    if "nvfp4" in (plan.compute, plan.attention) and family(chip) != "nvidia":
        yield "NVFP4 is NVIDIA's"
    if plan.chips != piece.chips:
        yield f"{plan.chips} of {piece.chips} chips"
    dims = [section.dims for section in model.program().sections]
    experts = max((own.get("e", 0) for own in dims), default=0)
    for own in dims:
        if "n" in own and own["n"] % split:
            yield f"{own['n']} heads over {split}"
        if "k" in own and (own["k"] % split if split < own["k"] else split % own["k"]):
            yield f"{own['k']} KV heads over {split}"
        if plan.compute == "fp8_block" and "f" in own:
            slices = plan.data * tensor // plan.expert if "e" in own else tensor
            if own["f"] / slices % 128 and slices > 1:
                yield f"blocks of {own['f']} over {slices}"
    world = plan.data * tensor
    if experts and world % plan.expert:
        yield f"expert={plan.expert} of {world}"
    if experts and engine in ("vllm", "vllm-ep", "sglang-ep", "trtllm-ep") and plan.expert not in (1, world):
        yield f"{engine} with expert={plan.expert} of {world}"
    if engine.endswith("-ep") and (plan.data < 2 or plan.expert != world or plan.pipe > 1):
        yield f"{engine} is data-parallel attention with experts over all ranks, not {plan}"
    if experts and engine in ("trtllm", "trtllm-bench") and experts % plan.expert:
        yield f"{experts} experts over {plan.expert}"
    if engine in TODAY and (plan.width > 1 or plan.spread == "batch" or (plan.context > 1 and "trtllm" not in engine)):
        yield f"{engine} with {plan}"
    if engine in ("sgl-jax", "jetstream", "pax") and plan.pipe > 1:
        yield f"{engine} with pipe={plan.pipe}"


def offered(model: Transformer, chip: Chip, engine: str, formats: Formats) -> Iterator[tuple[Slice, ServingPlan]]:
    for lot in lots(model, slices_of(chip), formats, ("copy",), engine):
        yield from ((piece, lot.one(place)) for place, piece in enumerate(lot.pieces))


def check_offers(models: list[str], engines_: list[str]) -> int:
    count = 0
    for chip in map(load_chip, chip_names()):
        here = [engine for engine in engines_ if runs_on(engine, chip)]
        for model in map(load_model, models):
            for engine in here:
                for formats in legal_formats(engine, chip, model):
                    for piece, plan in offered(model, chip, engine, formats):
                        count += 1
                        assert not list(broken(engine, piece, model, plan)), f"{engine} {piece} {model.name} {plan}"
    return count


def test_no_search_offers_what_an_engine_refuses() -> None:
    assert check_offers(SOME, ["vllm", "sglang-ep", "trtllm", "vllm-tpu", "sgl-jax", "generic"]) > 5000


@pytest.mark.slow
def test_no_search_offers_what_an_engine_refuses_for_any_model() -> None:
    assert check_offers(MODELS, list(engines())) > 100_000


def check_recommended(models: list[str], chips: list[str]) -> None:
    """The best of what `dscale serve` finds with the engine that people run there, in the checkpoint's own formats and
    quantised."""
    for model in models:
        for chip in chips:
            for quantize in ("", "any"):
                asked = read_question(ServeQuestion(model=model, on=chip, batch="8", quantize=quantize))
                configs = [] if possible(asked).refusals else search(asked)
                if not configs:
                    continue
                ranked = ranked_by_format(asked, configs)
                for one in (*ranked.native, *ranked.narrower):
                    engine = one.engine
                    assert not list(broken(engine, one.piece, asked.model, one.plan)), (
                        f"{engine} {one.piece} {one.plan}"
                    )
                    assert asked.ask.prompt + asked.ask.output <= (asked.model.context or 1 << 60)


def test_nothing_that_an_engine_refuses_is_recommended() -> None:
    check_recommended(SOME[:2], ["h100", "gb200", "mi355x", "v6e"])


@pytest.mark.slow
def test_nothing_that_an_engine_refuses_is_recommended_for_any_model() -> None:
    check_recommended(MODELS, list(chip_names()))


def test_the_witness_sees_what_is_wrong() -> None:
    piece, model = Slice(load_chip("mi355x"), (8,)), load_model("phi-4")
    plan = ServingPlan(tensor=8, weights="nvfp4", compute="nvfp4")
    assert len(list(broken("trtllm", piece, model, plan))) >= 3
    assert list(broken("vllm", piece, model, replace(plan, tensor=2, weights="bf16", compute="bf16"))) == [
        "2 of 8 chips"
    ]
