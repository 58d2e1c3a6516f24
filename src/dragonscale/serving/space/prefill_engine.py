"""The engine of replicas that only prefill, beside others that decode."""

from dragonscale.physics.hardware import Chip
from dragonscale.serving.engine.auto import AUTO, auto_choice
from dragonscale.serving.engine.engine import split_settings
from dragonscale.serving.engine.legality import rules, server_of
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.deployment import Deployment


def prefill_engine(asked: str, saved: str, decoding: Deployment, chip: Chip, plan: ServingPlan) -> str:
    """The engine of replicas that prefill on a chip, where nobody names one: the one that was `asked` for, or else the
    form of the engine of the replicas that decode (`saved` is what a plan file says of these) which fits the plan.

    Replicas of one server hand caches to each other whatever its flags, so that those that prefill may exchange tokens
    by an all-to-all (`sglang-ep`) and those that decode may not (`sglang`), or the other way round.
    """
    decode_engine = decoding.engine.name
    if asked and split_settings(asked)[0] != AUTO:
        return asked
    if chip.name != decoding.chip.name:
        return asked or AUTO
    if not saved:
        usual = auto_choice(chip, decoding.model, plan.chips, plan).engine
        if server_of(usual) == server_of(decode_engine):
            return asked.replace(AUTO, usual, 1) if asked else usual
    if rules(decode_engine).wide and not plan.is_wide:
        return server_of(decode_engine)
    return asked or saved or decode_engine
