"""Plans judged in blocks: rows of meshes and microbatches, under words and chunks that a batch shares."""

from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.training.evaluation import Job, Verdict, judge
from dragonscale.training.plan import Plan


@dataclass
class Rows:
    """Distinct meshes and microbatches as arrays."""

    job: Job
    numbers: dict[str, Any]

    def __len__(self) -> int:
        return len(self.numbers["pipe"])


def judge_rows(rows: Rows, words: Plan, virtual: int, part: slice) -> Verdict:
    """The rows `part` under some words, each rank holding `virtual` chunks."""
    numbers = {name: values[part] for name, values in rows.numbers.items()}
    return judge(rows.job, words, numbers | {"virtual": numpy.full(part.stop - part.start, virtual)})
