"""The cases as the TPU compiler made them, kept as texts; `python -m tests.evidence.xla_cases` makes them and the table
anew.

Set `DRAGONSCALE_COMPILER_PYTHON` to a Python that has `libtpu` (0.0.42 with jax 0.10.2 made what is here). Names of
cases as arguments make only those.
"""

import gzip
import os
import re
import sys
from pathlib import Path

from dragonscale.evidence.verify.compiling import PYTHON
from dragonscale.physics.hardware import parse_slice
from tests.evidence.book_programs.cases import CASES, Case
from tests.evidence.book_programs.verdicts import Judged, compile_cases, judge, table

FOLDER = Path(__file__).parent / "data" / "xla_cases"
TABLE = Path(__file__).parents[2] / "docs" / "data" / "verify_cases.csv"
ON_TPUS = [(case, piece) for case in CASES for piece in case.slices if parse_slice(piece).chip.kind == "tpu"]


def path_of(case: Case, piece: str) -> Path:
    return FOLDER / f"{re.sub(r'[^a-z0-9]+', '_', f'{piece} {case.name}'.lower())}.hlo.gz"


def kept_text(case: Case, piece: str) -> str:
    return gzip.decompress(path_of(case, piece).read_bytes()).decode()


def in_order(judged: list[Judged]) -> list[Judged]:
    """Cases as they are listed, GPUs before TPUs."""
    order = [(case.name, piece) for case in CASES for piece in case.slices]
    return sorted(judged, key=lambda each: order.index((each.case.name, each.piece)))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for case, piece, text in compile_cases("tpu", sys.argv[1:]):
        path_of(case, piece).write_bytes(gzip.compress(text.encode(), mtime=0))
    os.environ.pop(PYTHON, None)  # the GPU compiler is this Python's own
    judged = [judge(case, piece, kept_text(case, piece)) for case, piece in ON_TPUS]
    judged += [judge(*each) for each in compile_cases("gpu")]
    TABLE.write_text(table(in_order(judged)), encoding="utf-8")


if __name__ == "__main__":
    main()
