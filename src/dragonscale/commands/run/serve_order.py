"""What `dscale run serve` is asked, understood: the model and its weights, the plan, the workers, and which devices and
how much of their memory each of them sees. All of it before JAX is loaded.
"""

import glob
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.commands.given import check_named, comma_list
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.run import RunServeQuestion
from dragonscale.commands.questions.shared import ROUTER
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.models.transformer import Transformer
from dragonscale.runtime.server.wire import WorkerOrder
from dragonscale.runtime.train.documents import tokenizer_folder
from dragonscale.serving.engine.launch import LaunchLimits
from dragonscale.serving.engine.plan import ServingPlan, parse_serving_plan
from dragonscale.serving.engine.plan_file import SavedPlan, read_serving_plan

# What an engine is built for where nobody says: sequences of a data rank, tokens of a step, of a sequence, pages on a
# CPU.
SEQUENCES, TOKENS, LENGTH, PAGES = 64, 2048, 4096, 2048
FORMATS = {"weights": ("bf16", "fp32", "int8"), "kv": ("bf16", "fp32", "int8"), "compute": ("bf16", "fp32")}
PLAN_WORDS = re.compile(r"(?i)\s*([a-z]+\d+|[a-z]+\s*=\s*\S+)([,\s]+([a-z]+\d+|[a-z]+\s*=\s*\S+))*\s*")
NOT_RUN = {"pipe": "pipeline stages", "context": "context parallelism", "width": "2D weight-stationary matmuls"}
DRAFTS = 4
NGRAM = "ngram"


@dataclass(frozen=True)
class ServeOrder:
    """A server in full, and how it was asked for. `name` is what clients call the model, `folder` where its tokenizer
    is (none: numbers for text)."""

    question: RunServeQuestion
    model: Transformer
    saved: SavedPlan
    name: str
    folder: str
    workers: tuple[WorkerOrder, ...]
    environments: tuple[dict[str, str], ...]
    api_key: str
    slice: str = ""

    @property
    def plan(self) -> ServingPlan:
        return self.saved.plan

    @property
    def first(self) -> WorkerOrder:
        """A worker that decodes, as all of them do."""
        return next(worker for worker in self.workers if worker.role != "prefill")

    @property
    def replicas(self) -> int:
        """Workers that decode."""
        return sum(worker.role != "prefill" for worker in self.workers)


def read_order(question: RunServeQuestion) -> ServeOrder:
    """Check every flag; what cannot be used is refused in one sentence."""
    check_named(question.model, question.on, question.draft)
    saved, model_name = _saved(question)
    named = written(with_assumed(model_name, question.assume, question.family))
    if not named:
        raise InputError("Say what to serve: --model llama3-8b, or a plan file that names its model.")
    model = load_model(named)
    saved = replace(saved, plan=_formats(question, saved), model=named)
    weights = _weights(question, named)
    folder = _tokenizer(question, named, weights)
    workers = _workers(question, saved, model, WorkerOrder(model=named, weights=weights, tokenizer=folder))
    return ServeOrder(
        question,
        model,
        saved,
        question.name or _called(named),
        folder,
        tuple(workers),
        tuple(environments(workers)),
        question.api_key or os.environ.get("DSCALE_API_KEY", ""),
        written(question.on) or saved.slice,
    )


def _workers(question: RunServeQuestion, saved: SavedPlan, model: Transformer, order: WorkerOrder) -> list[WorkerOrder]:
    """What each worker runs: an order of the model and its weights, with every limit and the plan of its pool."""
    pools = _pools(question, saved, model)
    _check_ranges(question)
    names = ("max_seqs", "token_budget", "memory_fraction")
    launch = LaunchLimits(*(getattr(question, name) or getattr(saved.launch, name) for name in names))
    draft, drafts = _draft(question, saved, model)
    # the draft model's own cache is not handed over
    if draft not in ("", NGRAM) and len(pools) > 1:
        raise InputError(
            f"{shorten(draft)} cannot draft behind workers that prefill, whose pages are the model's own alone; take "
            "--draft ngram, or --prefill-replicas 0."
        )
    sequences = launch.max_seqs or -(-saved.batch // saved.plan.data) or SEQUENCES
    length = _length(question, model)
    common = msgspec.structs.replace(
        order,
        sequences=sequences,
        # each sequence of a step takes its drafts and one more token
        tokens=launch.token_budget or max(TOKENS, sequences * (drafts + 1)),
        length=length,
        memory=launch.memory_fraction or 0.9,
        draft=draft,
        draft_weights=question.draft_weights or _own_weights(draft),
        draft_tokens=drafts,
        prefix_cache=bool(question.prefix_cache),
        lazy=bool(question.lazy),
        seed=question.seed,
        cpu=question.cpu,
        pages=_pages(question, length),
        adapters=_adapters(question, question.name or _called(order.model)),
    )
    for _, plan, _ in pools:
        if 0 < question.cpu < plan.chips:
            need = f"give --cpu {plan.chips}."
            raise InputError(f"--cpu {question.cpu} is fewer devices than the plan {plan} takes; {need}")
    runs = [(role, str(plan)) for role, plan, count in pools for _ in range(count)]
    return [msgspec.structs.replace(common, plan=plan, role=role) for role, plan in runs]


def _check_ranges(question: RunServeQuestion) -> None:
    if question.router not in ROUTER.offers:
        raise unknown("router", question.router, ROUTER.offers)
    for name in ("max_seqs", "token_budget"):
        if getattr(question, name) == 0:
            raise InputError(f"--{name.replace('_', '-')} is 0; write a number from 1, or leave it out.")
    if not 0 <= question.port <= 65535:
        raise InputError(f"--port is {question.port}; ports go from 0 to 65535.")
    if question.queue_limit < 0:
        raise InputError(f"--queue-limit is {question.queue_limit}; write a number of requests from 0.")


def _saved(question: RunServeQuestion) -> tuple[SavedPlan, Any]:
    """The plan, and the model: the one word may be a plan file, a plan or the model."""
    word = written(question.plan).strip()
    # a word such as `tp1` may still be a model's name
    if word.endswith(".toml") or PLAN_WORDS.fullmatch(word):
        try:
            saved = read_serving_plan(word)
        except InputError:
            if question.model or word.endswith(".toml"):
                raise
        else:
            return saved, question.model or saved.model
    if question.model:
        raise InputError(
            f"{shorten(word)} is no plan; write a plan file of `dscale serve --save`, or how to split the model, "
            "such as tp1."
        )
    return SavedPlan(ServingPlan()), question.plan


def _formats(question: RunServeQuestion, saved: SavedPlan) -> ServingPlan:
    """The plan in formats that can be run: those that were said, or bf16 (fp32 on a CPU, which has no other)."""
    wide = question.dtype or ("fp32" if question.cpu else "")
    # formats that the plan names stay, unless --dtype is given
    free = [name for name in FORMATS if question.dtype or name not in saved.named]
    formats: dict[str, Any] = {name: wide for name in free if wide and getattr(saved.plan, name) in ("bf16", "fp32")}
    formats |= {name: value for name, value in (("weights", question.quantize), ("kv", question.kv_dtype)) if value}
    plan = replace(saved.plan, **formats)
    for name, runnable in FORMATS.items():
        if getattr(plan, name) not in runnable:
            raise InputError(f"The plan has {name} in {getattr(plan, name)}; {', '.join(runnable)} can be run.")
    return plan


def _check_split(plan: ServingPlan, model: Transformer) -> None:
    """That the engine has a mesh for a plan: experts are dealt over the data x tensor chips, whole data ranks at a
    time."""
    for name, why in NOT_RUN.items():
        if getattr(plan, name) > 1:
            raise InputError(
                f"The plan {plan} has {why}, which the engine does not run; take tensor, data and expert degrees."
            )
    ways, data = plan.expert, plan.data
    if ways == 1:
        return
    experts = max((section.dims.get("e", 0) for section in model.program().sections), default=0)
    if not experts:
        raise InputError(f"The plan {plan} deals out experts, and {model.name} has none.")
    if experts % ways:
        raise InputError(
            f"The plan {plan} deals out {experts} experts of {model.name}, which expert={ways} does not divide."
        )
    # each group of experts is a whole number of data ranks, or a whole part of one
    if data * plan.tensor % ways or (ways % data and data % ways):
        raise InputError(
            f"In the plan {plan} experts are dealt over its data x tensor = {data * plan.tensor} chips, which "
            f"expert={ways} does not split evenly; write tp{ways},ep{ways} or dp{ways},ep{ways}."
        )


def _weights(question: RunServeQuestion, named: str) -> str:
    """The folder of the weights; none for random ones, which have to be asked for."""
    own_folder = _own_weights(named)
    if question.random:
        if question.load_weights:
            raise InputError("--random and --load-weights say two things; leave one of them out.")
        return ""
    folder = question.load_weights or own_folder
    if not folder:
        raise InputError(
            f"Say where the weights of {shorten(named)} are: --load-weights FOLDER of .safetensors files; or --random."
        )
    trained = glob.glob(os.path.join(glob.escape(folder), "[0-9]*", "state"))  # checkpoints of `dscale run train`
    if not trained and not _own_weights(folder):
        raise InputError(
            f"--load-weights is {shorten(folder)}, in which there is no .safetensors file and no checkpoint."
        )
    return folder


def _tokenizer(question: RunServeQuestion, named: str, weights: str) -> str:
    """The folder of the tokenizer; none where tokens stand for themselves."""
    folder = str(tokenizer_folder(named, question.tokenizer, weights) or "")
    if not folder and (question.tokenizer or not question.random):
        where = question.tokenizer or weights
        raise InputError(
            f"There is no tokenizer.json in {shorten(where)}; name the folder that has it with --tokenizer."
        )
    return folder


def _adapters(question: RunServeQuestion, model: str) -> list[tuple[str, str]]:
    """LoRAs by name and folder."""
    folders: dict[str, str] = {}
    for adapter in filter(None, question.lora_modules.split(",")):
        name, equals, folder = adapter.partition("=")
        if not (equals and name and folder):
            raise InputError(f"--lora-modules is {shorten(adapter)}; write NAME=FOLDER, such as sql=adapters/sql.")
        if name in folders or name == model:
            raise InputError(f"Two models would be called {shorten(name)}; give each --lora-modules a name of its own.")
        if not Path(folder, "adapter_config.json").is_file():
            raise InputError(f"There is no adapter_config.json in {shorten(folder)}; a LoRA is a folder of PEFT's.")
        folders[name] = folder
    return list(folders.items())


def _called(named: str) -> str:
    """What a model is called: a config by its folder."""
    path = Path(named)
    if path.name == "config.json" and path.parent.name:
        return path.parent.name
    return path.name


def _own_weights(named: str) -> str:
    """The model's own folder, where it is one with weights in it."""
    if named and glob.glob(os.path.join(glob.escape(named), "*.safetensors")):
        return named
    return ""


def _pools(question: RunServeQuestion, saved: SavedPlan, model: Transformer) -> list[tuple[str, ServingPlan, int]]:
    """Roles, their plans, and how many workers each has."""
    _check_split(saved.plan, model)
    pool = saved.prefill
    replicas, prefill = question.replicas, question.prefill_replicas
    if replicas is None:
        replicas = saved.replicas or 1
    if prefill is None:
        prefill = 0
        if pool.slice:
            prefill = pool.replicas or 1
    if not 1 <= replicas <= 1024 or not 0 <= prefill <= 1024:
        raise InputError(
            f"{replicas} replicas and {prefill} that prefill cannot be started on one machine; take 1 to 1024."
        )
    if not prefill:
        if question.prefill_plan:
            raise InputError("--prefill-plan is for workers that prefill; say how many with --prefill-replicas.")
        return [("both", saved.plan, replicas)]
    text = question.prefill_plan or pool.plan
    plan = parse_serving_plan(text) if text else saved.plan
    # pages are handed over as they are, so both pools have the same formats
    plan = replace(plan, **{name: getattr(saved.plan, name) for name in ("weights", "kv", "compute")})
    _check_split(plan, model)
    if plan != saved.plan and (ours := _kept_heads(model, plan)) != (theirs := _kept_heads(model, saved.plan)):
        raise InputError(
            f"The plan {plan} prefills into {max(ours)} KV heads of a layer, copies counted, and {saved.plan} decodes "
            f"from {max(theirs)}; pages can be handed over where both keep as many: take --prefill-plan "
            f"tp{saved.plan.tensor}."
        )
    return [("prefill", plan, prefill), ("decode", saved.plan, replicas)]


def _kept_heads(model: Transformer, plan: ServingPlan) -> list[int]:
    """KV heads of each layer's cache over all chips: copies of a head that several chips use count."""
    from dragonscale.runtime.packed_weights import served
    from dragonscale.runtime.place import exchanges, serving_place
    from dragonscale.runtime.serve.step_program import cached_sizes

    program = model.program()
    mesh = serving_place(plan, program, prompt=False, exchange=exchanges(plan, program))
    return [cached_sizes(served(program)[name], mesh)[0] for name in program.order]


def _length(question: RunServeQuestion, model: Transformer) -> int:
    if question.length:
        length = question.length.tokens(Listener())
    else:
        length = min(model.context or LENGTH, LENGTH)
    if model.context and length > model.context:
        raise InputError(f"--length is {length:,}; {model.name} takes sequences of up to {model.context:,} tokens.")
    return length


def _pages(question: RunServeQuestion, length: int) -> int:
    least = -(-length // WorkerOrder(model="").page) + 1
    if question.pages is None:
        if question.cpu:
            return max(PAGES, least)
        return 0
    if question.pages < least:
        raise InputError(
            f"--pages is {question.pages}; a sequence of {length:,} tokens (--length) takes {least}, one of which "
            "is reserved."
        )
    return question.pages


def _draft(question: RunServeQuestion, saved: SavedPlan, model: Transformer) -> tuple[str, int]:
    """Who drafts, and how many tokens at a time."""
    saved_draft = saved.speculation
    draft = written(question.draft) or saved_draft.draft
    drafts = question.drafts or (saved_draft.drafts if saved_draft.draft or question.draft else 0)
    if question.drafts and not draft:
        draft = NGRAM
    if draft and draft != NGRAM:
        vocabulary, own_words = (loaded.program().sections[0].dims["v"] for loaded in (load_model(draft), model))
        if vocabulary != own_words:
            raise InputError(
                f"{shorten(draft)} has a vocabulary of {vocabulary:,} tokens and {model.name} one of {own_words:,}; a "
                "draft has the same."
            )
        if not (question.random or question.draft_weights or _own_weights(draft)):
            raise InputError(
                f"Say where the weights of the draft {shorten(draft)} are: --draft-weights FOLDER of its "
                ".safetensors files."
            )
    elif question.draft_weights:
        raise InputError("--draft-weights is for a model that drafts; name it with --draft.")
    if question.drafts is not None and not 1 <= drafts <= 16:
        raise InputError(f"--drafts is {drafts}; draft 1 to 16 tokens at a time.")
    return draft, (drafts or DRAFTS) if draft else 0


FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def environments(workers: list[WorkerOrder]) -> list[dict[str, str]]:
    """Which devices each worker sees: on GPUs a part of those there are; a TPU host belongs to one process."""
    if workers[0].cpu:
        return [{"JAX_PLATFORMS": "cpu"}] * len(workers)
    shared = {FRACTION: _fraction(workers[0].memory)}
    if len(workers) == 1:
        return [shared]
    if glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"):
        raise InputError(
            f"{len(workers)} workers are asked for, and the TPUs of a host belong to one process; take --replicas 1 "
            "with data parallelism in the plan (dp2)."
        )
    devices, needed = _gpus(), [parse_serving_plan(worker.plan).chips for worker in workers]
    if len(devices) < sum(needed):
        raise InputError(
            f"{len(workers)} workers need {sum(needed)} devices, and there are {len(devices)}; take fewer "
            "replicas, or --cpu N."
        )
    # the devices of worker i end where those of the first i + 1 workers do
    ends = [sum(needed[: index + 1]) for index in range(len(needed))]
    return [
        shared | {"CUDA_VISIBLE_DEVICES": ",".join(devices[end - count : end])}
        for end, count in zip(ends, needed, strict=True)
    ]


def _fraction(memory: float) -> str:
    """The part of a GPU's memory that XLA takes, which pages are counted in: what its own variable says, or a little
    more than asked for."""
    text = os.environ.get(FRACTION, "") or f"{max(memory, 0.95):g}"
    if not re.fullmatch(r"0?\.\d+|1(\.0*)?", text) or not float(text):
        raise InputError(f"{FRACTION} is {shorten(text)} in the environment; write a number above 0 and up to 1.")
    return text


def _gpus() -> list[str]:
    """The GPUs that this process may use, by number."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return comma_list(visible)
    if shutil.which("nvidia-smi") is None:
        return []
    # the tool, as JAX must not be loaded before each worker knows its devices
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False).stdout
    return [str(number) for number, _ in enumerate(line for line in listed.splitlines() if line.startswith("GPU "))]
