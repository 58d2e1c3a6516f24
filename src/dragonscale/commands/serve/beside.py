"""What a given plan or format is to be held against: one chip alone, the checkpoint's own formats."""

from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import degrees_text
from dragonscale.commands.serve.variant_records import BesideRow
from dragonscale.serving.advice.beside import HeldAgainst, beside
from dragonscale.serving.space.frontier import Config


def beside_rows(job: ServeAsked, config: Config) -> list[BesideRow]:
    """One chip alone and the checkpoint's own formats at the same batch, each with how the asked one compares."""
    return [_row(job, config, row) for row in beside(job, config)]


def _row(job: ServeAsked, config: Config, row: HeldAgainst) -> BesideRow:
    state = row.config.state
    asked_text = degrees_text(config.plan)
    if row.config.chips == config.chips:
        asked_text = config.plan.weights
        if row.config.plan.weights == config.plan.weights:
            asked_text = f"a cache in {config.plan.kv}"
    return BesideRow(
        what=row.what,
        asked=asked_text,
        tpot_s=float(state.tpot),
        e2e_s=float(state.latency),
        output_tokens_per_s=float(state.requests) * job.ask.output,
        speed=row.speed,
        is_same=row.is_same,
    )
