"""Measured steps of reinforcement learning and measured weight transfers (`dscale validate rl FILE`).

A step is scored where its lengths, its pools and both splits are stated; its phases where they are stated beside it.
What sources leave out is marked as inferred: the tokens of a prompt, and recompute (the least that fits)."""

import math
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from dragonscale.evidence.choices import summary, weigh
from dragonscale.evidence.described import chip_of, meaning, words
from dragonscale.evidence.rl_bands import NOMINAL, StepRatio, bands, covered
from dragonscale.evidence.rows import Form, Row, attempt, count, needed, number, read_cases, read_table, skip_if, sound
from dragonscale.evidence.score import Scored, ScoreReport, report_of, statistics_of
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware import Slice, dtype_bytes
from dragonscale.physics.numbers import first_number
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.simulation.rl.frameworks import Framework, framework, transfer_seconds
from dragonscale.simulation.rl.lengths import AnswerLengths
from dragonscale.simulation.rl.step import RlPlan, RlStep, judge_step, network_card
from dragonscale.simulation.rl.work import RlWork, handed, packed_job, work_of
from dragonscale.training.cost.evaluation import judge_one
from dragonscale.training.plan.plan import Plan

PROMPT = 128
"""Tokens of a prompt with its template that nobody states: OpenMathInstruct-2 as NeMo-RL's tables imply it (100 to
130), other mathematics being as short."""
POLICIES = ("none", "selective", "block")
PHASES = {"generation": "generation_s", "logprob": "logprob_s", "update": "train_s", "weight transfer": "weight_sync_s"}


@dataclass(frozen=True)
class MeasuredStep:
    """A row as the planner understands it."""

    row: Row
    work: RlWork
    plan: RlPlan

    @property
    def published(self) -> str:
        """The framework's release that tables are of, or the page that a step is from."""
        named = (
            self.row["framework"],
            self.row["version"],
            self.row["source_detail"].partition("@")[0].partition(" ")[0],
        )
        return " ".join(named[:2] if "performance-summary" in named[2] else named)

    @property
    def kind(self) -> tuple[str, ...]:
        """What alternatives share."""
        return tuple(self.row[name] for name in ("source", "version", "model", "chip", "samples_per_step", "max_seq"))


def step_of(row: Row, _place: int = 0) -> MeasuredStep:
    """What a row says, or why it cannot be scored."""
    known = words("rl")
    skip_if(not number(row["step_s"]), "no step stated")
    mode = meaning(known["modes"], row["mode"])
    skip_if(not mode, f"no plan of the mode {row['mode'][:40]!r}")
    skip_if(bool(re.search(known["images"], row["algorithm"])), "images are read too")
    whole = _whole(row)
    skip_if(not row["mean_response_len"] and not whole, "mean length of answers not stated")
    model, base = load_model(row["model"]), framework(meaning(known["frameworks"], row["framework"]) or "generic")
    work = _work(row, model, whole)
    chip = chip_of(row["chip"])
    trained, rolled = (Slice(chip, (needed(row, f"{part}_chips"),)) for part in ("train", "rollout"))
    trainer = meaning(known["trainers"], row["train_engine"])
    skip_if(not trainer, f"no stack known for the trainer {row['train_engine'][:30]!r}")
    plan, recompute = _split(_as_scripts(row, model), trained.chips, trainer)
    work = handed(work, base, trainer)
    job = packed_job(work, trained, trainer, plan.replicas * plan.microbatch)
    if not recompute:
        fits = (
            one for one in POLICIES if first_number(judge_one(job, replace(plan, remat=one)).hbm_bytes) <= chip.visible
        )
        plan = replace(plan, remat=next(fits, "block"))
    dtype = "fp8" if "fp8" in row["rollout_dtype"] else "bf16"
    rollout = ServingPlan(tensor=needed(row, "rollout_tp"), weights=dtype, compute=dtype)
    ahead = (number(row["max_staleness_steps"]) or 1.0) if mode.endswith("async") else 0.0
    mode = mode.replace("colocated-async", "colocated")
    return MeasuredStep(row, work, RlPlan(mode, _framework(row, base, mode), job, plan, rollout, rolled, ahead))


def _whole(row: Row) -> float:
    """Tokens of a prompt and its answer, on average: as stated, or as the rate of a step says; 0 where neither does."""
    rate, seconds = number(row["tokens_per_s_per_chip"]), number(row["step_s"])
    said = number(row["mean_seq"])
    if said or not (rate and seconds and row["samples_per_step"] and row["n_chips"]):
        return float(said or 0.0)
    return float(rate * seconds * needed(row, "n_chips") / needed(row, "samples_per_step"))


def _as_scripts(row: Row, model: Transformer) -> Row:
    """A row with what its source leaves to the framework's scripts."""
    known, name = words("rl"), f"{row['framework']} | {row['train_engine']}"
    found = {"activation_recompute": row["activation_recompute"] or meaning(known["recompute"], name)}
    if count_parameters(model).total >= known["large"]:
        found["train_tp"] = row["train_tp"] or meaning(known["tensor"], name)
    return row | found


def _work(row: Row, model: Transformer, whole: float) -> RlWork:
    """The lengths and the passes of a row."""
    answers, group = needed(row, "samples_per_step"), count(row, "samples_per_prompt") or 1
    mean = float(row["mean_response_len"] or max(whole - PROMPT, 1.0))
    prompt = round(whole - mean) if row["mean_seq"] and whole > mean else PROMPT
    most = count(row, "response_len_max") or needed(row, "max_seq") - prompt
    name = meaning(words("rl")["algorithms"], row["algorithm"])
    skip_if(not name, f"no passes known of the algorithm {row['algorithm'][:30]!r}")
    lengths = AnswerLengths(mean, max(most, math.ceil(mean)))
    work = work_of(model, name, max(answers // group, 1), group, prompt, lengths, count(row, "updates_per_step") or 1)
    old = not row["logprob_recompute"].startswith("no ")
    padded = work.longest if row["sequence_packing_or_dynamic"] == "none" else 0
    more = meaning(words("rl")["oversample"], f"{row['framework']} | {row['algorithm']}")
    reference = row["reference_model_kl"].startswith("yes")
    return replace(work, reference=reference, old=old, padded=padded, oversample=float(more or 1.0))


def _split(row: Row, chips: int, trainer: str) -> tuple[Plan, bool]:
    """How the trainer was split, and whether its recompute is stated."""
    tensor, context, pipe, ways = (count(row, f"train_{name}") or 1 for name in ("tp", "cp", "pp", "ep"))
    skip_if(chips % (tensor * context * pipe), "parallel sizes do not multiply to the number of chips")
    copies, expert = chips // (tensor * context * pipe), ways // math.gcd(ways, tensor * context)
    skip_if(copies % expert, "ep does not divide the replicas")
    virtual = count(row, "train_vpp") or 1
    remat = {"none": "none", "full": "block", "selective": "selective"}.get(row["activation_recompute"], "")
    axes = {"fsdp": copies // expert, "tensor": tensor, "context": context, "expert": expert, "pipe": pipe}
    dtype = "fp8" if "fp8" in row["train_dtype"] else "bf16"
    rest = {"zero": 1 if trainer.startswith("megatron") else 3, "virtual": virtual, "dtype": dtype}
    # a fraction of 1 is Adam on the host's cores (optimizer_cpu_offload)
    rest["offload"] = "optimizer" if "fraction 1" in row["optimizer_offload"] else "none"
    schedule = "interleaved" if virtual > 1 else "1f1b"
    return Plan(**axes, **rest, remat=remat or "none", schedule=schedule, microbatch=1), bool(remat)


def _framework(row: Row, base: Framework, mode: str) -> Framework:
    """The framework with what the row says of its engine."""
    engine = meaning(words("rl")["engines"], row["rollout_engine"]) or base.engine
    returned = (*base.returned, mode) if "(decoupled PPO)" in row["logprob_recompute"] else base.returned
    engine += ",host.graphs=false" if row["rollout_cuda_graph"] == "no" else ""
    share = number(row["rollout_gpu_mem_util"]) or base.share(mode)
    return msgspec.structs.replace(base, engine=engine, share_colocated=share, share_split=share, returned=returned)


def judge(case: MeasuredStep) -> RlStep:
    """What the planner expects of a row."""
    step = judge_step(case.work, case.plan)
    skip_if(not math.isfinite(step.seconds), "the engine's weights do not fit by the planner's count")
    sound(step.seconds)
    return step


def phase_pairs(case: MeasuredStep, step: RlStep) -> dict[str, tuple[float, float]]:
    """Measured and expected seconds of the phases that a row states; one figure may be of both log-probabilities."""
    found = {name: (number(case.row[column]), step.phase(name)) for name, column in PHASES.items()}
    reference = number(case.row["ref_logprob_s"])
    if reference:
        found["reference"] = (reference, step.phase("reference"))
    elif found["logprob"][0]:
        found["logprob"] = (found["logprob"][0], step.phase("logprob") + step.phase("reference"))
    if case.plan.framework.always_offloads:  # a refit begins with optimizer state on its way to the host
        found["weight transfer"] = (found["weight transfer"][0], step.phase("weight transfer") + step.phase("offload"))
    return {name: (float(real), guess) for name, (real, guess) in found.items() if real and guess}


def sent_of(row: Row, _place: int = 0) -> Scored:
    """A measured weight transfer, scored."""
    known = words("weight_sync")
    seconds = number(row["time_s"])
    skip_if(not seconds, "no time stated")
    method = meaning(known["methods"], f"{row['framework']} | {row['method']}")
    skip_if(not method, f"no pace known of {row['method'][:40]!r}")
    model = load_model(row["model"].split(" (")[0].removesuffix("-Instruct-2507"))
    dtype = row["weights_dtype"].split()[-1] if row["weights_dtype"] else "bf16"
    volume = count_parameters(model).total * dtype_bytes(dtype)
    chips = count(row, "train_chips") or 8
    named = row["chip"].split("/")[0]
    card = network_card(Slice(chip_of(named), (chips,))) if named and row["train_chips"] else math.inf
    return Scored(row["id"], row["source"], float(seconds or 0), transfer_seconds(method, volume, card, chips), method)


def validate(path: str | Path) -> ScoreReport:
    """Score every row of a file of measured steps, or of measured weight transfers."""
    header, _ = read_table(path)
    if "time_s" in header and "step_s" not in header:
        sent, reasons = read_cases(path, "rl", [Form(words("weight_sync")["columns"], sent_of)], lambda one: one)
        return report_of(sent, reasons, "method")
    cases, reasons = read_cases(path, "rl", [Form(words("rl")["columns"], step_of)], lambda one: one)
    judged = attempt(cases, judge, reasons)
    scored, phases, ratios = [], defaultdict(list), list[StepRatio]()
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for case, step in judged:
        row, measured = case.row, float(case.row["step_s"])
        scored.append(Scored(row["id"], row["source"], measured, step.seconds, case.plan.mode))
        groups[case.kind].append((measured, step.seconds))
        ratios.append(StepRatio(case.plan.framework.name, case.published, measured / step.seconds))
        for name, pair in phase_pairs(case, step).items():
            phases[name].append(Scored(row["id"], row["source"], *pair, name))
    choices = [weigh(pairs) for pairs in groups.values() if len(pairs) > 1]
    band = {"nominal": NOMINAL, "covered": covered(ratios) if ratios else None, "sources_left_out": True}
    band["frameworks"] = {name: vars(one) for name, one in bands(ratios).items()} if ratios else {}
    apart = {name: statistics_of(rows) for name, rows in phases.items()}
    return report_of(scored, reasons, "mode", phases=apart, band=band, choices=summary(choices))
