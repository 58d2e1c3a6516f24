"""`dscale models`: what a model weighs and asks for, in ten lines, then by part; a line for each preset; what runs."""

import shlex
from typing import Any, ClassVar

import msgspec

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.charts import Bar, Chart, bars
from dragonscale.blocks.charts.amounts import amount as marked
from dragonscale.blocks.sheet import amount, table
from dragonscale.commands import grids, runnable
from dragonscale.commands.given import unnamed
from dragonscale.commands.questions.facts import ModelsQuestion
from dragonscale.commands.questions.flag import written
from dragonscale.commands.record import Face, Record, bind, shared
from dragonscale.commands.runnable import RunnableReport
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.models import load_model, model_names
from dragonscale.models.activations import REMAT, activation_bytes
from dragonscale.models.assumed import with_assumed
from dragonscale.models.count import cache_bytes
from dragonscale.models.flops import Workload, forward_flops, training_flops
from dragonscale.models.transformer import Transformer, count_parameters, kv_bytes_per_token
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.rooflines.model_flops import model_flops
from dragonscale.physics.units import render

CHARTS = ("parameters", "flops")


class ModelReport(Record):
    """A model at one sequence length. `cache_bytes_reserved` is what an engine sets aside: whole pages, and the
    full sequence even in windowed layers."""

    CHARTS: ClassVar[tuple[str, ...]] = CHARTS

    name: str
    n_layers: int
    d_model: int
    vocab: int
    parameters: int
    active_parameters: int
    checkpoint_parameters: int
    parameters_by_part: dict[str, int]
    active_parameters_by_part: dict[str, int]
    extra_parameters: dict[str, int]
    sequence: int
    causal: bool
    forward_flops_per_token: float
    training_flops_per_token: float
    six_n_flops_per_token: float
    six_n_with_embedding_flops_per_token: float
    forward_flops_per_token_by_part: dict[str, float]
    weight_bytes: dict[str, float]
    stored_bytes: dict[str, int]
    kv_dtype: str
    kv_bytes_per_token: float
    cache_bytes_per_sequence: float
    cache_bytes_reserved: float
    activation_bytes_per_token: dict[str, float]
    program: str
    notes: list[str]
    advice: str

    def headline(self) -> str:
        size, used = render(self.parameters, "count"), render(self.active_parameters, "count")
        return f"{self.name}: {size} parameters, {used} used per token"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each part: its parameters, those used per token, and its forward FLOPs of a token."""
        parts = dict.fromkeys([*self.parameters_by_part, *self.forward_flops_per_token_by_part])
        return [
            {
                "part": part,
                "parameters": self.parameters_by_part.get(part, 0),
                "active_parameters": self.active_parameters_by_part.get(part, 0),
                "forward_flops_per_token": self.forward_flops_per_token_by_part.get(part, 0.0),
            }
            for part in parts
        ]


class ModelRow(msgspec.Struct):
    """A preset in a line."""

    name: str
    parameters: int
    active_parameters: int
    n_layers: int
    d_model: int
    kv_bytes_per_token: float


class ModelsReport(Record):
    """Every preset; `--json` prints the rows alone."""

    ROWS: ClassVar[str] = "models"
    CHARTS: ClassVar[tuple[str, ...]] = CHARTS[:1]

    models: list[ModelRow]

    def headline(self) -> str:
        return f"{len(self.models)} presets"

    def to_dict(self) -> Any:
        return msgspec.to_builtins(self.models)


WEIGHT_DTYPES = ("bf16", "fp8", "int4")


def model_report(
    model: Transformer, sequence: int, kv_dtype: str = "bf16", causal: bool = True, page: int = 16
) -> ModelReport:
    """Everything countable about a model at one sequence length."""
    program = model.program()
    # weights that are used for every token, and those of experts that are picked
    counts = count_parameters(model)
    work = Workload(1, sequence, sequence, causal)
    # An embedding that is also the head is multiplied, so it is among the parameters used per token.
    looked_up = 0
    if "head" in counts.by_part:
        looked_up = counts.by_part.get("embed", 0)
    forward = {part: float(flops) / sequence for part, flops in forward_flops(program, work).items()}
    training = sum(float(flops) for flops in training_flops(program, work).values()) / sequence
    # windowed layers keep a window
    cached = sum(cache_bytes(program, sequence, kv_dtype).values())
    # an engine sets aside whole pages, and in windowed layers the whole sequence
    reserved = sum(cache_bytes(program, sequence, kv_dtype, page=page, hybrid=False).values())
    report = ModelReport(
        **shared(ModelReport, model, notes=list(model.notes), program=str(program)),
        parameters=counts.total,
        active_parameters=counts.active,
        checkpoint_parameters=counts.checkpoint,
        parameters_by_part=counts.by_part,
        active_parameters_by_part=counts.active_by_part,
        extra_parameters=counts.extras_by_part,
        sequence=sequence,
        causal=causal,
        forward_flops_per_token=sum(forward.values()),
        training_flops_per_token=training,
        six_n_flops_per_token=float(model_flops(counts.active, 1)),
        six_n_with_embedding_flops_per_token=float(model_flops(counts.active + looked_up, 1)),
        forward_flops_per_token_by_part=forward,
        weight_bytes={dtype: counts.total * dtype_bytes(dtype) for dtype in WEIGHT_DTYPES},
        stored_bytes=model.stored,
        kv_dtype=kv_dtype,
        kv_bytes_per_token=float(kv_bytes_per_token(model, kv_dtype)),
        cache_bytes_per_sequence=float(cached),
        cache_bytes_reserved=float(reserved),
        activation_bytes_per_token={
            policy: float(sum(activation_bytes(program.sections[1:-1], work, policy).values())) / sequence
            for policy in REMAT
        },
        advice="",
    )
    report.advice = _advice(report)
    return report


def _advice(report: ModelReport) -> str:
    largest, size = max(report.parameters_by_part.items(), key=lambda item: item[1])
    scores = report.forward_flops_per_token_by_part.get("scores", 0.0) / report.forward_flops_per_token
    return (
        f"{size / report.parameters:.0%} of the parameters are {largest}; at {report.sequence:,} tokens the "
        f"attention's dot products are {scores:.0%} of the FLOPs."
    )


def models_report() -> ModelsReport:
    """Every preset."""
    rows: list[ModelRow] = []
    for name in model_names():
        model = load_model(name)
        counts = count_parameters(model)
        kv = float(kv_bytes_per_token(model))
        rows.append(ModelRow(name, counts.total, counts.active, model.n_layers, model.d_model, kv))
    return ModelsReport(rows)


def ask(question: ModelsQuestion, listener: Listener) -> ModelReport | ModelsReport | RunnableReport:
    """One model by part, every preset, or what runs somewhere."""
    dtype_bytes(question.kv_dtype)
    if question.here or question.on != "":
        return runnable.ask(question, listener)
    if question.engine or question.all or question.top != ModelsQuestion.top:
        raise InputError("--engine, --all and --top are about what runs on a chip; name it, such as --on 'RTX 4090'.")
    length = question.seq.tokens(listener)
    if question.model == "":
        if question.assume or question.family or question.einsums:
            raise InputError("--assume, --as and --einsums are about one model; name it, such as llama3-8b.")
        return models_report().came_from(question, listener.notes)
    model = load_model(with_assumed(question.model, question.assume, question.family))
    report = model_report(model, length, question.kv_dtype, causal=not question.full)
    for text in report.notes:
        listener.note(text)
    return report.came_from(question, listener.notes)


def ask_model(question: ModelsQuestion, listener: Listener) -> ModelReport | RunnableReport:
    """One model, which must be named, or what runs somewhere."""
    report = ask(question, listener)
    if isinstance(report, ModelsReport):
        raise InputError("Name a model, such as 'llama3-8b'; `ds.model_names()` lists the presets.")
    return report


def models_blocks(report: ModelsReport, _detail: bool) -> laid.Sheet:
    """A line for each preset."""
    why = "By part, as of a path or org/name of the Hugging Face Hub:"
    return laid.Sheet((grids.grid("models", report.models), laid.NextStep("dscale models NAME", why)))


# Policies of recompute by the words of the field, where those are others.
RECOMPUTED = {"block": "full (block)"}


def model_blocks(report: ModelReport, detail: bool) -> laid.Sheet:
    """One model: the summary, then its parts; or its named einsums and nothing else, where those were asked for."""
    # the program alone, for other tools to read
    if report.asked is not None and report.asked.einsums:
        return laid.Sheet((laid.Verbatim(report.program),))
    shape = f"{report.n_layers} layers, d_model {report.d_model:,}, vocabulary {report.vocab:,}"
    blocks: list[laid.Block] = [
        laid.Title(report.name, shape),
        summary(report),
        parts_table(report),
        laid.Prose(report.advice),
    ]
    if detail:
        blocks += [laid.Verbatim(report.program)]
    question = report.asked
    if question is not None and not unnamed(question.model) and not (question.assume or question.family):
        name = shlex.quote(written(question.model))
        flags = f" --context {question.seq}" * (question.seq != ModelsQuestion.seq)
        flags += f" --kv-dtype {question.kv_dtype}" * (question.kv_dtype != ModelsQuestion.kv_dtype)
        blocks.append(laid.NextStep(f"dscale estimate {name}{flags}", "Next, what it takes to train and serve:"))
    return laid.Sheet(tuple(blocks))


def summary(report: ModelReport) -> laid.Facts:
    """Parameters, bytes, FLOPs, cache and activations."""
    stored, activations = sum(report.stored_bytes.values()), report.activation_bytes_per_token.items()
    return grids.summary(
        "model-facts",
        report,
        extra=", ".join(f"{part} {size:,}" for part, size in report.extra_parameters.items()) or None,
        weights=_by_name(report.weight_bytes),
        files=f"{amount(stored, 'bytes')}: {_by_name(report.stored_bytes)}" if stored else None,
        attention="causal" if report.causal else "full",
        kept=", ".join(f"{RECOMPUTED.get(policy, policy)} {amount(size, 'bytes')}" for policy, size in activations),
    )


def _by_name(sizes: dict[str, float] | dict[str, int]) -> str:
    return ", ".join(f"{amount(size, 'bytes')} in {name}" for name, size in sizes.items())


def parts_table(report: ModelReport) -> laid.Grid:
    """Parameters and forward FLOPs by part, the largest first; attention's dot products have no parameters."""
    flops = report.forward_flops_per_token_by_part
    rows = []
    # the largest part first
    for part, size in sorted(report.parameters_by_part.items(), key=lambda item: -item[1]):
        share = size / report.parameters
        rows.append((part, size, f"{share:.1%}", share, amount(flops.get(part, 0.0), "FLOP")))
    # which has FLOPs and no parameters
    if flops.get("scores"):
        rows.append(("attention (QK, PV)", 0, "", 0.0, amount(flops["scores"], "FLOP")))
    columns = [
        "part",
        laid.Column("parameters", right=True),
        laid.Column("share", right=True),
        laid.Column("", bar=True, keep=2),
        laid.Column("forward/token", right=True),
    ]
    return table(columns, rows)


def draw_models(report: ModelReport | ModelsReport, kind: str) -> Chart:
    """One model by part, or all presets by size."""
    if not isinstance(report, ModelReport):
        # a bar for each preset
        rows = sorted(report.models, key=lambda row: -row.parameters)
        shown = [Bar(row.name, row.parameters, "compute", _active(row)) for row in rows]
        return bars(shown, f"Parameters of {len(rows)} presets", "in brackets: used per token, of MoE models", "count")
    if kind == "flops":
        parts = report.forward_flops_per_token_by_part
        title = f"{report.name}: forward FLOPs of a token by part"
        subtitle = f"{marked(report.forward_flops_per_token, 'FLOP')} at {report.sequence:,} tokens"
        return bars(_parts(parts, report.forward_flops_per_token), title, subtitle, "FLOP")
    title = f"{report.name}: parameters by part"
    subtitle = (
        f"{marked(report.parameters, 'count')} in all, {marked(report.active_parameters, 'count')} used per token"
    )
    return bars(_parts(report.parameters_by_part, report.parameters), title, subtitle, "count")


def _parts(parts: dict[str, float] | dict[str, int], total: float) -> list[Bar]:
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return [Bar(name, float(value), "compute", marked(value / total, "share")) for name, value in ordered if value > 0]


def _active(row: ModelRow) -> str:
    if row.active_parameters < 0.8 * row.parameters:
        # dense models use all their parameters
        return marked(row.active_parameters, "count")
    return ""


bind(ModelReport, Face(model_blocks, draw_models))
bind(ModelsReport, Face(models_blocks, draw_models))
