"""What a row of measured serving runs means: the model, the chips, the plan, the load, and the latencies seen.

Two sources share the file. InferenceX states the attention's data parallelism; NVIDIA's own runs leave it empty. How
their columns say how many GPUs there were was settled by rows that appear twice under both readings with the same
latencies, and by what fits into memory:

- `moe_tp = moe_ep = n` with `tp` or `attention_dp` of n² (64, 8, 8; 16, 4, 4; 4, 2, 2): n GPUs with n-way expert
  parallelism; the product of `--tp n` and `--ep n` was entered for the GPUs.
- `tp = attention_dp = n` with `moe_ep` of n² (vLLM): n GPUs, `--tensor-parallel-size n --enable-expert-parallel`; the
  launch scripts have no data parallelism.
- Data parallelism left empty: the experts' parallelism over `tp`; and where `concurrency = batch x tp`, the batch is
  that of one GPU, so attention ran data parallel over all of them.
- `moe_tp`, `moe_ep` of 0 and those of dense models mean nothing.
"""

from dataclasses import dataclass, replace
from functools import cache

from dragonscale.errors import InputError
from dragonscale.evidence.collective_case import Skip
from dragonscale.evidence.score import number
from dragonscale.evidence.serving_recipes import Launch, Recipe, recipe_of
from dragonscale.hardware import Chip, load_chip
from dragonscale.models import Transformer, load_model
from dragonscale.models.ffn import Moe
from dragonscale.serving.plan import ServingPlan

COLUMNS = (
    "system", "backend", "backend_version", "model_path", "precision", "isl", "osl", "tp_size", "pp_size", "attention_dp_size",
    "moe_tp_size", "moe_ep_size", "batch_size", "concurrency", "measured", "silicon_ttft_ms", "silicon_tpot_ms",
)  # fmt: skip
ENGINES = ("vllm", "sglang", "trtllm")

BLOCK_SCALED = ("deepseek-v3", "qwen3-32b", "qwen3-235b-a22b", "minimax-m2.5", "qwen3.5-397b-a17b", "glm-5")
"""Models whose fp8 checkpoints have a scale for every 128 x 128 weights; others have one for a tensor."""
NARROW = {
    "gpt-oss-120b": ("mxfp4", "bf16", "bf16"),
    "llama3.1-70b": ("nvfp4", "nvfp4", ""),
}
"""4-bit checkpoints: weights, products, and attention where it differs. The others quantise all but attention to nvfp4.
gpt-oss has bf16 activations on Hopper; on Blackwell its activations are narrow too (mxfp8), in kernels like nvfp4's."""


@dataclass(frozen=True)
class Served:
    """A measured serving run in the model's terms. Latencies are means in seconds."""

    id: str
    source: str
    engine: str
    version: str
    model: Transformer
    chip: Chip
    plan: ServingPlan
    recipe: Recipe
    input: int
    output: int
    clients: int
    ttft: float
    tpot: float

    @property
    def mixture(self) -> bool:
        """Whether the model is a mixture of experts."""
        return is_mixture(self.model)

    @property
    def drafts(self) -> int:
        """Tokens that multi-token prediction guesses for every one it is sure of."""
        with_tensor, with_data = self.recipe.drafts
        return with_data if self.plan.data > 1 else with_tensor

    @property
    def budget(self) -> int:
        """Most tokens of one iteration."""
        budget = self.recipe.budget
        if isinstance(budget, int):
            return budget
        beside = {"context": self.output + 20, "prompt": self.clients * (self.drafts + 1) + 64}
        return self.input + beside.get(budget, self.clients + 1500)


@cache
def _model(name: str) -> Transformer:
    return load_model(name)


def is_mixture(model: Transformer) -> bool:
    """Whether some layers have experts."""
    return any(isinstance(layer.ffn, Moe) for layer in model.layers)


def _whole(row: dict[str, str], name: str) -> int:
    value = number(row[name])
    return round(value) if value is not None else 0


def _needed(row: dict[str, str], name: str) -> float:
    value = number(row[name])
    if value is None:
        raise Skip(f"{name} is not stated")
    return value


def split_of(row: dict[str, str], mixture: bool, clients: int) -> tuple[int, int, int]:
    """GPUs of tensor and data parallelism, and ways of expert parallelism; see the top of this file."""
    tensor = max(_whole(row, "tp_size"), 1)
    if not mixture:
        return tensor, 1, 1
    sliced, dealt = max(_whole(row, "moe_tp_size"), 1), max(_whole(row, "moe_ep_size"), 1)
    if not row["attention_dp_size"]:
        batch = _whole(row, "batch_size")
        if tensor > 1 and batch and clients == batch * tensor:
            return 1, tensor, dealt
        return tensor, max(sliced * dealt // tensor, 1), dealt
    data = max(_whole(row, "attention_dp_size"), 1)
    if sliced == dealt > 1 and tensor * data == sliced * dealt:
        return (dealt, 1, dealt) if data == 1 else (1, dealt, dealt)
    if tensor == data > 1 and sliced == 1 and dealt == tensor * data:
        return tensor, 1, tensor
    if tensor * data != sliced * dealt:
        raise Skip("the splits of attention and experts do not agree")
    return tensor, data, dealt


def formats_of(model: str, published: str, precision: str, chip: str) -> dict[str, str]:
    """The plan's formats of weights and products. An fp8 run of a checkpoint that is not fp8 finds its scales while serving."""
    if precision in ("", "bf16"):
        return {}
    if model in NARROW and (precision == "fp4" or model == "gpt-oss-120b"):
        weights, compute, attention = NARROW[model]
        compute = "nvfp4" if model == "gpt-oss-120b" and chip == "b200" else compute
        return {"weights": weights, "compute": compute, "attention": attention}
    if precision == "fp8":
        static = model not in BLOCK_SCALED and (model == "llama3.1-70b" or "fp8" in published.lower())
        return {"weights": "fp8", "compute": "fp8" if static else "fp8_block"}
    if precision == "fp4":
        return {"weights": "nvfp4", "compute": "nvfp4", "attention": "bf16"}
    if precision == "int4":
        return {"weights": "int4", "compute": "bf16", "attention": "bf16"}
    raise Skip(f"no kernels for the precision {precision[:20]!r}")


def served_of(row: dict[str, str], place: int) -> Served:
    """A row as a run."""
    engine = row["backend"].lower()
    if engine not in ENGINES:
        raise Skip(f"no constants for the engine {row['backend'][:20]!r}")
    try:
        model, chip = _model(row["model_path"]), load_chip(row["system"].removesuffix("_sxm"))
    except InputError as error:
        raise Skip(str(error)) from None
    if _whole(row, "pp_size") > 1:
        raise Skip("pipeline parallelism is not read yet")
    batch = _whole(row, "batch_size")
    clients = _whole(row, "concurrency") or batch
    if not clients:
        raise Skip("the number of clients is not stated")
    mixture = is_mixture(model)
    tensor, data, expert = split_of(row, mixture, clients)
    source = "inferencex" if row["attention_dp_size"] else "aiconfigurator"
    prompt, output = _whole(row, "isl"), _whole(row, "osl")
    launch = Launch(
        source, engine, row["backend_version"], row["measured"], model.name, row["model_path"], row["precision"],
        chip.name, prompt, output, tensor, expert,
    )  # fmt: skip
    recipe = recipe_of(launch)
    if recipe.unclear:
        raise Skip(recipe.unclear)
    plan = ServingPlan(tensor=tensor, data=data, expert=expert, kv=recipe.kv)
    plan = replace(plan, **formats_of(model.name, row["model_path"], row["precision"], chip.name))
    shape = f"{prompt}/{output}x{clients}"
    identity = f"{place}:{engine}:{row['backend_version']}:{model.name}:{chip.name}:{plan.tensor}x{plan.data}:{shape}"
    return Served(
        identity, source, engine, row["backend_version"], model, chip, plan, recipe, prompt, output, clients,
        _needed(row, "silicon_ttft_ms") / 1e3, _needed(row, "silicon_tpot_ms") / 1e3,
    )  # fmt: skip
