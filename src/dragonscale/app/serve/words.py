"""What a plan file says of a question about serving, under what its flags say."""

from dataclasses import replace

from dragonscale.app.questions.serve import ServeQuestion
from dragonscale.serving.plan_file import SavedDrafts, SavedPlan


def as_saved(question: ServeQuestion, saved: SavedPlan | None) -> ServeQuestion:
    """The question with what its flags leave as it usually is taken from a plan file: lengths, rate, targets, drafts,
    limits."""
    if saved is None:
        return question
    traffic, drafts = saved.traffic, saved.speculation
    if not drafts.acceptance:  # how many drafts are accepted is for whoever runs it to say; without it none are counted
        drafts = SavedDrafts()
    words = {
        "prompt": str(traffic.prompt or ""),
        "output": str(traffic.output or ""),
        "cached": traffic.cached,
        "rate": traffic.rate,
        "ttft": saved.targets.ttft,
        "tpot": saved.targets.tpot,
        "max_seqs": saved.launch.max_seqs,
        "token_budget": saved.launch.token_budget,
        "memory_fraction": saved.launch.memory_fraction,
        "accept": drafts.acceptance,
        "drafts": drafts.drafts or None,
        "draft": drafts.draft,
    }
    left = {name: value for name, value in words.items() if value and getattr(question, name) == getattr(USUAL, name)}
    return replace(question, **left)


USUAL = ServeQuestion("")
