"""What the modules of engines share."""

from dragonscale.exports.imported import Given, slice_given
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.source import Source
from dragonscale.models import load_model
from dragonscale.serving.launch import engine_on
from dragonscale.serving.plan import ServingPlan


def model_word(run: ServingRun) -> str:
    """The model as an engine is given it."""
    return hub_id(run.file.model)


def launch_read(
    source: Source, given: Given, engine: str, plan: ServingPlan, model: str, **limits: float | None
) -> dict[str, float]:
    """The limits that a command says (`max_seqs`, `token_budget`, `memory_fraction`), as a plan file holds them: what the
    engine would have taken on that chip anyway, or what the planned batch asks for, is not said."""
    kept = source.kept.get("launch", {})
    usual: dict[str, float] = {}
    piece = slice_given(source, given, plan.chips)
    if piece is not None and model:
        launched = engine_on(engine, piece.chip, load_model(model), None, plan.chips, plan)
        usual = {
            "max_seqs": launched.scheduling.max_sequences, "token_budget": launched.scheduling.max_tokens,
            "memory_fraction": launched.memory.share,
        }  # fmt: skip
    if batch := source.kept.get("batch"):
        usual["max_seqs"] = max(-(-int(batch) // plan.data), 1)
    said = {name: value for name, value in limits.items() if value is not None}
    return {name: value for name, value in said.items() if value == kept.get(name) or value != usual.get(name)}
