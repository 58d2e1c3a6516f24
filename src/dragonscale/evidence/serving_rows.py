"""What a row of measured serving runs means: the model, the chips, the plan, the load, how the server was launched (the
first recipe of `serving_recipes.toml` that fits), and the latencies seen.

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

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.described import words
from dragonscale.evidence.rows import Form, Row, Skip, count, skip_if, stated, typed
from dragonscale.models import Transformer, load_model
from dragonscale.models.catalogue import is_preset, preset
from dragonscale.models.names import FORMATS as CHECKPOINTS
from dragonscale.physics.hardware import load_chip
from dragonscale.serving.engine.engine import Engine, load_engine
from dragonscale.serving.engine.plan import ServingPlan, parse_serving_plan
from dragonscale.serving.space.bands import is_moe


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How runs were launched; the file says what each setting means. `match` lists what rows must
    say for it to fit. `inferred` gives the reason for every setting that was read off the results
    and is not in a launch script."""

    why: str
    match: dict[str, list[str | int]] = {}
    inferred: dict[str, str] = {}
    kv: str = "bf16"
    budget: int | str = 8192
    memory: float = 0.9
    sequences: int = 0
    poll: tuple[int, int] = (1, 1)
    wait: int = 0
    wait_ratio: float = 0.9
    drafts: tuple[int, int] = (0, 0)
    prompts: int = 10
    spread: float = 0.8
    reuse: float = 0.0
    overlap: bool = True
    interval: int = 1
    captured: int = 0
    piecewise: dict[str, int] = {}
    dealt: dict[str, int] = {}
    attention_data: dict[str, int] = {}
    experts: dict[str, str] = {}
    balance: int = 0
    batching: int = 0
    acceptance: float = 0.0
    cold: bool = False
    unclear: str = ""

    def begun(self, least: Mapping[str, int], lengths: str, clients: int) -> bool:
        """Whether a setting that a script makes by the number of clients is made; `any` stands for all lengths."""
        return clients >= least.get(lengths, least.get("any", clients + 1))


@functools.cache
def recipes() -> dict[str, Recipe]:
    """All recipes by name, in the order in which they are tried; the last has the engine's
    defaults."""
    text = (resources.files("dragonscale.evidence") / "serving_recipes.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text)["recipe"], dict[str, Recipe])
    return found | {"defaults": Recipe("no launch script known")}


def recipe_of(said: Mapping[str, str | int], date: str) -> str:
    """The name of the recipe of a run about which a row says these things; `defaults` where none is
    known."""
    dated = f"{said['version']}@{date}"

    def fits(match: Mapping[str, list[str | int]]) -> bool:
        asked = ((said[name], allowed, name) for name, allowed in match.items())
        return all(own in allowed or (name == "version" and dated in allowed) for own, allowed, name in asked)

    return next(name for name, recipe in recipes().items() if fits(recipe.match))


LIMITS = {"input": 10**7, "output": 10**6, "clients": 10**5}
"""Tokens and clients that a simulated run may have."""


class ServingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A typed row: `clients` in a closed loop send prompts of `input` tokens and wait for `output`;
    latencies are means. `recipe` names how the server was launched, `inferred` the settings of it
    that were read off results."""

    id: str
    source: str
    inferred: str = ""
    engine: str
    version: str = ""
    model: str
    chip: str
    plan: str
    recipe: str = "defaults"
    input: int
    output: int
    clients: int
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True)
class ServedRun:
    """A typed row in the model's terms."""

    row: ServingRow
    model: Transformer
    plan: ServingPlan
    recipe: Recipe
    engine: Engine

    @property
    def moe(self) -> bool:
        """Whether the model is an MoE."""
        return is_moe(self.model)

    @property
    def drafts(self) -> int:
        """Tokens that multi-token prediction guesses for every one it is sure of."""
        with_tensor, with_data = self.recipe.drafts
        return with_data if self.plan.data > 1 else with_tensor

    @property
    def sequences(self) -> int:
        """Most sequences at once."""
        most = self.recipe.sequences
        return most if most > 0 else max(self.row.clients + most, 1)

    @property
    def budget(self) -> int:
        """Most tokens of one iteration."""
        row, budget = self.row, self.recipe.budget
        if isinstance(budget, int):
            return budget
        beside = {"context": row.output + 20, "prompt": row.clients * (self.drafts + 1) + 64, "twice": row.input}
        return row.input + beside.get(budget, row.clients + 1500)


def run_of(row: ServingRow) -> ServedRun:
    """A typed row as a run."""
    skip_if(row.recipe not in recipes(), f"no recipe called {row.recipe[:40]!r}")
    for name, most in LIMITS.items():
        skip_if(not 1 <= getattr(row, name) <= most, f"{name} is not stated, or more than any server takes")
    skip_if(not (row.ttft_s and row.tpot_s), "a latency is not stated")
    plan = parse_serving_plan(row.plan)
    return ServedRun(row, _model(row.model), plan, recipes()[row.recipe], load_engine(row.engine))


@cache
def _model(name: str) -> Transformer:
    """The model of a row, whose formats are those of the row and not of the checkpoint that it names; what was trained
    on from another (DeepSeek-R1) goes by that one's name."""
    model = load_model(re.sub(rf"(?:-(?:{CHECKPOINTS}))+$", "", name, flags=re.IGNORECASE))
    return replace(model, name=preset(model.name).get("base", model.name) if is_preset(model.name) else model.name)


def split_of(row: Row, moe: bool, clients: int) -> tuple[int, int, int]:
    """GPUs of tensor and data parallelism, and ways of expert parallelism; see the top of this
    file."""
    tensor = count(row, "tp_size") or 1
    if not moe:
        return tensor, 1, 1
    sliced, dealt = count(row, "moe_tp_size") or 1, count(row, "moe_ep_size") or 1
    if not row["attention_dp_size"]:
        batch = count(row, "batch_size")
        if tensor > 1 and batch and clients == batch * tensor:
            return 1, tensor, dealt
        return tensor, max(sliced * dealt // tensor, 1), dealt
    data = count(row, "attention_dp_size") or 1
    if sliced == dealt > 1 and tensor * data == sliced * dealt:
        return (dealt, 1, dealt) if data == 1 else (1, dealt, dealt)
    if tensor == data > 1 and sliced == 1 and dealt == tensor * data:
        return tensor, 1, tensor
    skip_if(tensor * data != sliced * dealt, "the splits of attention and experts do not agree")
    return tensor, data, dealt


def launched_split(recipe: Recipe, given: tuple[int, int, int], lengths: str, clients: int) -> tuple[int, int, int]:
    """GPUs of tensor and data parallelism, and ways of expert parallelism, where the launch script chose them and the
    row has the number of GPUs only."""
    tensor, data, expert = given
    if data == 1 and recipe.begun(recipe.attention_data, lengths, clients):
        return 1, tensor, tensor
    return tensor, data, tensor if recipe.begun(recipe.dealt, lengths, clients) else expert


def formats_of(model: str, published: str, precision: str, chip: str) -> dict[str, str]:
    """The plan's formats of weights and matmuls. An fp8 run of a checkpoint that is not fp8 finds
    its scales while serving."""
    known = words("serving")
    precision = precision or "bf16"
    own = (f"{model} {precision}", f"{model} {chip}", model) if precision != "bf16" else ()
    found = next((known["formats"][name] for name in (*own, precision) if name in known["formats"]), None)
    if found is None:
        raise Skip(f"no kernels for the precision {precision[:20]!r}")
    one_scale = model == "llama3.1-70b" or "fp8" in published.lower()
    if found.get("compute") == "fp8_block" and one_scale and model not in known["block_scaled"]:
        return found | {"compute": "fp8"}
    return found


def published_run(row: Row, place: int) -> ServingRow:
    """A row of published runs as a typed one."""
    engine, version = row["backend"].lower(), row["backend_version"]
    skip_if(engine not in words("serving")["engines"], f"no constants for the engine {row['backend'][:20]!r}")
    try:
        model, chip = _model(row["model_path"]), load_chip(row["system"].removesuffix("_sxm"))
    except InputError as error:
        raise Skip(str(error)) from None
    skip_if(count(row, "pp_size") > 1, "pipeline parallelism is not read yet")
    clients = count(row, "concurrency") or count(row, "batch_size")
    skip_if(not clients, "the number of clients is not stated")
    tensor, data, expert = split_of(row, is_moe(model), clients)
    source = "inferencex" if row["attention_dp_size"] else "aiconfigurator"
    prompt, output = count(row, "isl"), count(row, "osl")
    said: dict[str, Any] = {"source": source, "engine": engine, "version": version, "model": model.name}
    said |= {"chip": chip.name, "input": prompt, "output": output, "clients": clients}
    launch = {"published": row["model_path"], "precision": row["precision"], "tensor": tensor, "expert": expert}
    name = recipe_of(said | launch, row["measured"])
    recipe = recipes()[name]
    skip_if(recipe.unclear, recipe.unclear)
    if is_moe(model):
        tensor, data, expert = launched_split(recipe, (tensor, data, expert), f"{prompt}/{output}", clients)
    plan = ServingPlan(tensor=tensor, data=data, expert=expert, kv=recipe.kv)
    plan = replace(plan, **formats_of(model.name, row["model_path"], row["precision"], chip.name))
    labels = (place, engine, version, model.name, chip.name, f"{tensor}x{data}", f"{prompt}/{output}x{clients}")
    columns = {f"{what}_s": f"silicon_{what}_ms" for what in ("ttft", "tpot")}
    times: dict[str, Any] = {
        what: stated(row[column], f"{column} is not stated") / 1e3 for what, column in columns.items()
    }
    launched = {"plan": str(plan), "recipe": name, "inferred": "; ".join(recipe.inferred)}
    return ServingRow(id=":".join(map(str, labels)), **said, **launched, **times)


FORMS = (Form(words("serving")["columns"], published_run), typed(ServingRow, ("engine", "plan", "clients", "tpot_s")))
