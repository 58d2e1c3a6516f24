"""What a model weighs and asks for: parameters, FLOPs, cache and activations, by part."""

from dragonscale.app.models.records import ModelReport, ModelRow, ModelsReport
from dragonscale.models import load_model, model_names
from dragonscale.models.activations import REMAT, activation_bytes
from dragonscale.models.cache import cache_bytes
from dragonscale.models.flops import Workload, forward_flops, training_flops
from dragonscale.models.transformer import Transformer, count_parameters, kv_bytes_per_token
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.rooflines.counts import model_flops

WEIGHT_DTYPES = ("bf16", "fp8", "int4")


def model_report(
    model: Transformer, sequence: int, kv_dtype: str = "bf16", causal: bool = True, page: int = 16
) -> ModelReport:
    """Everything countable about a model at one sequence length."""
    program = model.program()
    counts = count_parameters(model)
    work = Workload(1, sequence, sequence, causal)
    # An embedding that is also the head is multiplied, so it is among the parameters used per token.
    looked_up = counts.by_part.get("embed", 0) if "head" in counts.by_part else 0
    forward = {part: float(flops) / sequence for part, flops in forward_flops(program, work).items()}
    training = sum(float(flops) for flops in training_flops(program, work).values()) / sequence
    cached = sum(cache_bytes(program, sequence, kv_dtype).values())
    reserved = sum(cache_bytes(program, sequence, kv_dtype, page=page, hybrid=False).values())
    report = ModelReport(
        name=model.name,
        n_layers=model.n_layers,
        d_model=model.d_model,
        vocab=model.vocab,
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
        program=str(program),
        notes=list(model.notes),
        advice="",
    )
    report.advice = _advice(report)
    return report


def _advice(report: ModelReport) -> str:
    largest, size = max(report.parameters_by_part.items(), key=lambda item: item[1])
    scores = report.forward_flops_per_token_by_part.get("scores", 0.0) / report.forward_flops_per_token
    return (
        f"{size / report.parameters:.0%} of the parameters are {largest}; at {report.sequence:,} tokens the "
        "attention's "
        f"dot products are {scores:.0%} of the FLOPs."
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
