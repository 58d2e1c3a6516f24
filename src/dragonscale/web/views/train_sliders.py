"""The stops of the form's sliders: batches, sequence lengths and slices that can be had.

Stops do not move with what is chosen, so that a slider stays where the hand left it; what was typed in between becomes
a stop.
"""

import bisect
from collections.abc import Iterable
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.physics.units import render
from dragonscale.training.plan import CONTEXTS, OFFLOADS, OPTIMIZERS, POLICIES, SCHEDULES, Plan
from dragonscale.training.scaling import slice_sizes
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.train_plan import first_plan, job_of, typed_slice

MOST_CHIPS = 65536
SEQUENCES = tuple(2**power * step // 2 for power in range(1, 15) for step in (2, 3))
"""Powers of two and one and a half times those, which are searched for the best plan (`views/train_curves.py`)."""
LENGTHS = tuple(2**power for power in range(9, 21))
SHARES = (*range(1, 9), *(2**power * step // 4 for power in range(3, 9) for step in (4, 5, 6, 7)))
CHOICES = {
    "remat": POLICIES,
    "zero": (0, 1, 2, 3),
    "schedule": SCHEDULES,
    "context_by": CONTEXTS,
    "optimizer": OPTIMIZERS,
    "offload": OFFLOADS,
}
"""Words of a plan, for its editor."""


def sliders_panel(asked: PageRequest) -> dict[str, Any]:
    """Stops with their text: batches in sequences (with a plan given, those that it divides), lengths, slices."""
    report, _ = first_plan(asked)
    work, own = report.workload, None
    try:
        _, job, plan = job_of(asked)
        share = plan.replicas * plan.microbatch if asked.fields.get("plan") else 0
        pieces = slice_sizes(job.slice.chip, max(MOST_CHIPS, job.slice.chips))
        own = job.slice.chips
        slices = {piece.chips: typed_slice(asked, str(piece)) for piece in [*pieces, job.slice]}
    except Infeasible:
        share, slices = 0, {}
    batches = _with(work.sequences, [share * many for many in SHARES] if share else SEQUENCES)
    return {
        "batch": [
            {"value": many, "text": _batch(many, work.seq), "typed": typed_batch(many, work.seq)} for many in batches
        ],
        "seq": [{"value": many, "text": f"{many:,} tokens"} for many in _with(work.seq, LENGTHS)],
        "chips": [
            {"value": many, "on": slices[many], "text": f"{slices[many]}, {many:,} chips"} for many in sorted(slices)
        ],
        "plan": {"usual": vars(Plan()), "choices": CHOICES},
        "at": {"batch": work.sequences, "seq": work.seq, "chips": own},
    }


def _with(own: int, stops: Iterable[int]) -> list[int]:
    found = sorted(set(stops))
    if own not in found:
        bisect.insort(found, own)
    return found


def typed_batch(sequences: int, length: int) -> str:
    """A batch as one types it.

    >>> typed_batch(512, 8192), typed_batch(500, 8192)
    ('4Mi', '500seq')
    """
    many, rest = divmod(sequences * length, 2**20)
    return f"{sequences}seq" if rest else f"{many}Mi"


def _batch(sequences: int, length: int) -> str:
    """A batch in words.

    >>> _batch(512, 8192)
    '512 sequences, 4Mi tokens'
    """
    tokens = render(sequences * length, "count", binary=True)
    return f"{sequences:,} sequence{'s' * (sequences != 1)}, {tokens} tokens"
