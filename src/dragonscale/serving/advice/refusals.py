"""What a job asks for that no engine runs, each refusal with the nearest thing that one does."""

from dataclasses import dataclass, replace

from dragonscale.physics.hardware import Chip, Slice
from dragonscale.serving.advice.formats import ANY_FORMAT, FormatRequest, formats_on
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.engine.auto import NODE
from dragonscale.serving.engine.checkpoint import bits, stored_in
from dragonscale.serving.engine.legality import QUANTIZE, WIDE, current_engines, pair_words, pairs
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.restrictions import BOTH, DECODE
from dragonscale.serving.space.legal import context_refusal, engine_refusal, format_refusal, refusal, wide_refusal


@dataclass(frozen=True)
class Possible:
    """The chips of a job that can do what it asks (all where none can), and why the others cannot."""

    targets: tuple[tuple[Chip, Slice | None], ...]
    refusals: list[str]
    refused_chips: tuple[Chip, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether no chip can do it."""
        refused = {chip.name for chip in self.refused_chips}
        return all(chip.name in refused for chip, _ in self.targets)


def possible(job: ServingJob) -> Possible:
    """The part of a job that some engine runs. With `force` all of it is judged."""
    if job.force:
        return Possible(job.targets, [])
    whole = job_refusal(job)
    if whole:
        return Possible(job.targets, [whole], tuple(chip for chip, _ in job.targets))
    able: list[tuple[Chip, Slice | None]] = []
    refused: list[Chip] = []
    refusals: dict[str, None] = {}  # each reason once, in the order of the chips
    for chip, slice_ in job.targets:
        why = chip_refusal(job, chip)
        if why:
            refused.append(chip)
            refusals[why] = None
        else:
            able.append((chip, slice_))
    return Possible(tuple(able) or job.targets, list(refusals), tuple(refused))


def job_refusal(job: ServingJob) -> str:
    """Why no chip can do what is asked; empty if some may, or if it is forced."""
    if job.force or job.past_context:
        return ""
    return context_refusal(job.model, job.ask.prompt, job.ask.output)


def chip_refusal(job: ServingJob, chip: Chip) -> str:
    """Why a chip cannot do what is asked, by any of the engines that are searched there; empty if it can."""
    if job.plan is not None:
        engine = job.engine_on(chip).name
        role = DECODE if job.ask.apart else BOTH
        return refusal(engine, chip, job.model, job.plan, role=role) or _draft_refusal(job, engine)
    sizes = [slice_.chips for target, slice_ in job.targets if slice_ is not None and target.name == chip.name]
    largest = max(sizes, default=0)
    # one chip and the largest replica: small and wide forms of an engine differ in what they run
    names = job.engine_names(chip, (1, largest or NODE + 1))
    refusals = [_engine_refusal(job, chip, name, largest) for name in names]
    return refusals[-1] if all(refusals) else ""


def _engine_refusal(job: ServingJob, chip: Chip, engine: str, chips: int) -> str:
    why = engine_refusal(engine, chip) or wide_refusal(engine, job.model, chips) or _draft_refusal(job, engine)
    if why:
        return why
    formats = job.formats_on(chip, engine)
    if not formats:
        wanted = job.formats.quantize
        if wanted in ("", ANY_FORMAT):
            wanted = stored_in(job.model)
        supported = ", ".join(pair_words(pairs(engine, chip)))
        return f"{engine} has no kernels for {wanted} on {chip.title}, only {supported}; {_instead(job, chip, engine)}"
    # what is searched is legal; what is given has to be checked
    if job.has_fixed_formats or job.formats.kv:
        for candidate in formats:
            why = format_refusal(engine, chip, job.model, candidate.applied_to(ServingPlan()))
            if why:
                return why
    return ""


def _draft_refusal(job: ServingJob, engine: str) -> str:
    if not job.lacks_drafts(engine):
        return ""
    wanted = f"with the heads of {job.model.name}, which --drafts {job.drafts_asked} asks for"
    return f"{engine} does not draft {wanted}; leave it out, or give --accept and --draft"


def _instead(job: ServingJob, chip: Chip, engine: str) -> str:
    """The engines that have the formats, or else formats that this one has."""
    able: list[str] = []
    for name in current_engines(chip):
        if name != engine and replace(job, engine=name).formats_on(chip):
            able.append(name)
    if able:
        return f"take --engine {' or '.join(able)}"
    stored_bits = bits(stored_in(job.model))
    flags: list[str] = []
    # 16 bits, where the checkpoint has no fewer to begin with
    wide = next((weights for weights, compute in pairs(engine, chip) if weights == compute and weights in WIDE), "")
    if wide and stored_bits >= bits(wide):
        flags.append(f"--dtype {wide}")
    for name in QUANTIZE:
        if name == ANY_FORMAT or bits(name) > stored_bits:
            continue
        request = FormatRequest(kv=job.formats.kv, attention=job.formats.attention, quantize=name)
        if formats_on(request, engine, chip, job.model, job.force):
            flags.append(f"--quantize {name}")
    return f"take {' or '.join(flags) or 'another chip'}"
