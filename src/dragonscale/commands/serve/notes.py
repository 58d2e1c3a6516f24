"""Notes beneath an answer: what a reader should know of the configurations that are shown."""

from collections.abc import Sequence

from dragonscale.commands.advised import Advice
from dragonscale.commands.serve.advice import margin_advice
from dragonscale.commands.serve.format_notes import forced_notes, format_notes
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.physics.units import render
from dragonscale.serving.advice.bills import deployed
from dragonscale.serving.advice.search import RankedByFormat, at_batches, is_narrower
from dragonscale.serving.advice.start_check import StartCheck, blocks_of
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.timed_shapes import untimed_experts
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.legal import exchange_note
from dragonscale.serving.steady.targets import LATENCIES


def brief_notes(job: ServeAsked, report: ServeReport, confirm: bool, configs: Sequence[Config]) -> list[str]:
    """The targets that are missed, or met by little, and those that only a run would judge."""
    first = report.configs[0]
    notes = [f"{text}." for text in first.violations]
    # which only a run judges
    percentiles = [LATENCIES[name] for name, goal in job.goals.items() if goal.share]
    if percentiles and not confirm:
        notes.append(f"In brief {' and '.join(percentiles)} are judged by means, not by percentiles.")
    return notes + [advice.text for advice in margin_advice(report.workload, first, configs)]


def answer_notes(
    job: ServeAsked,
    report: ServeReport,
    configs: Sequence[Config],
    ranked: RankedByFormat,
    started: StartCheck | None,
) -> list[Advice]:
    """Notes on the configurations that are shown, those with flags where another question would do better."""
    shown = ranked.native
    notes = forced_notes(job)
    if started is not None:
        notes.append(started.note or started.refusal)
    notes.append(_ranking_note(job, shown, configs))
    notes += format_notes(job, _with_format_notes(ranked))
    notes += _device_notes(shown)
    notes += _exchange_notes(shown[0])
    notes.append(_state_block_note(job, shown[0]))
    notes.append(untimed_experts(deployed(job, shown[0])))
    if report.speculation:
        notes.append(report.speculation.loss(shown[0].drafts))
    margins = margin_advice(report.workload, report.configs[0], configs)
    return [*(Advice(text) for text in notes if text), *margins]


def _with_format_notes(ranked: RankedByFormat) -> list[Config]:
    """The configurations whose formats are explained: the best on each chip, and the best in each narrower format."""
    by_chip: dict[str, Config] = {}
    for config in ranked.native:
        by_chip.setdefault(config.piece.chip.name, config)
    by_format: dict[str, Config] = {}
    for config in ranked.narrower:
        by_format.setdefault(config.plan.weights, config)
    return [*by_chip.values(), *by_format.values()]


def _ranking_note(job: ServeAsked, shown: Sequence[Config], configs: Sequence[Config]) -> str:
    """Which chips are ranked and sized by less than what is expected of them, and what would be first otherwise."""
    fractions: dict[str, str] = {}
    for config in shown:
        if config.counted < 1:
            name = config.piece.chip.name
            fractions[name] = f"{name} ({config.counted:.0%})"
    # one chip alone has nothing to be ranked against
    if not fractions or not (job.compares_chips or job.ask.rate):
        return ""
    names = ", ".join(fractions.values())
    note = (
        "Never measured, or nearly always slower than expected: ranked and sized by the slow end of the band, as part "
        f"of what is expected: {names}."
    )
    first = shown[0]
    narrower = is_narrower(first, job.model)
    alike = [config for config in configs if config.meets and is_narrower(config, job.model) == narrower]
    # what would be first if every expectation counted in full
    hoped = min(alike or shown, key=lambda config: (config.usd_per_h is None, config.cost * config.counted))
    if hoped.counted < 1 and hoped.piece.chip.name != first.piece.chip.name:
        note += f" At what is expected {hoped.plan} on {hoped.piece} would be first: measure it before you buy."
    return note


def _device_notes(shown: Sequence[Config]) -> list[str]:
    """How many devices vLLM counts where a chip is several of them; other engines have flags of their own, or (the
    generic one) none."""
    best_of_chip: dict[str, Config] = {}
    for config in shown:
        best_of_chip.setdefault(config.piece.chip.name, config)
    notes: list[str] = []
    for name, config in best_of_chip.items():
        devices, tensor = config.piece.chip.devices, config.plan.tensor
        if devices > 1 and config.engine.startswith("vllm"):
            notes.append(
                f"On {name} tensor counts chips, and engines count devices, {devices} a chip: for "
                f"tensor={tensor} give vLLM --tensor-parallel-size {tensor * devices}."
            )
    return notes


def _state_block_note(job: ServeAsked, best: Config) -> str:
    """That an engine's default number of sequences is more than there are blocks for recurrent states."""
    if best.is_fleet or job.limits.max_seqs is not None:
        return ""
    deployment = deployed(job, best)
    blocks = blocks_of(deployment, capacity(deployment))
    engine = deployment.engine
    if blocks is None or blocks.count >= engine.scheduling.max_sequences:
        return ""
    return (
        f"{engine.title} does not start with its default --max-num-seqs {engine.scheduling.max_sequences:,} here: the "
        f"KV cache has about {blocks.count:,} blocks for recurrent states; give it --max-num-seqs {best.batch}."
    )


def _exchange_notes(best: Config) -> list[str]:
    """That the recommended wide expert parallelism, of either pool, is run with another form of its engine."""
    replicas = [best]
    if isinstance(best, PooledConfig):
        replicas = [best.pools.prefill, best.pools.decode]
    notes = [exchange_note(replica.engine, replica.piece.chip, replica.plan) for replica in replicas]
    return list(dict.fromkeys(notes))


def at_most(job: ServeAsked, best: Config) -> str:
    """How many of the sequences that a launch allows at once fit, and what they get with all of these places taken."""
    if not job.launched or best.is_fleet:
        return ""
    scheduling = job.engine_on(best.piece.chip, best.engine, best.chips).scheduling
    allowed, fitting = scheduling.max_sequences * best.plan.data, best.most
    (full,) = at_batches(job, best, [fitting])
    times = f"TTFT {render(float(full.state.ttft), 's')}"
    if job.ask.output > 1:
        times = f"TPOT {render(float(full.state.tpot), 's')}, {times}"
    fit = f"all {allowed:,} fit" if fitting >= allowed else f"{fitting:,} of {allowed:,} fit"
    return f"{fit} at these lengths; with {fitting:,} at once {times}, {full.tokens_per_chip:,.0f} tok/s per chip"
