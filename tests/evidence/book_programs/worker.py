"""A process that compiles cases: `python -m tests.evidence.book_programs.worker gpu|tpu [NAME…]`.

It writes one JSON object a line, `{"case": …, "slice": …, "hlo": …}`. It starts with the environment of the compiler
that its slices need (`case_verdicts.compile_cases` starts it so); on TPUs it asks for plain collectives.
"""

import json
import os
import sys
from functools import lru_cache
from typing import Any

from dragonscale.evidence.xla import gpu_target, tpu_target
from dragonscale.physics.hardware import parse_slice
from tests.evidence.book_programs.cases import CASES, Case


@lru_cache
def _devices(piece: str) -> list[Any]:
    found = parse_slice(piece)
    return gpu_target.devices(found.chip, found.chips) if found.chip.kind == "gpu" else tpu_target.devices(found)


def case_text(case: Case, piece: str) -> str:
    """The HLO text that the compiler makes of a case."""
    import jax

    from tests.evidence.book_programs.programs import lower_case

    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    options = tpu_target.CANONICAL if parse_slice(piece).chip.kind == "tpu" else None
    text = lower_case(case, piece, _devices(piece)).compile(compiler_options=options).as_text()
    assert text is not None
    return text


def main() -> None:
    """Compile every case that is asked for, on its slices of the kind of chip that is named first."""
    kind, *names = sys.argv[1:]
    for case in CASES:
        for piece in case.slices:
            if parse_slice(piece).chip.kind == kind and (not names or case.name in names):
                text = case_text(case, piece)
                sys.stdout.write(json.dumps({"case": case.name, "slice": piece, "hlo": text}) + "\n")
                sys.stdout.flush()
    os._exit(0)  # the TPU compiler's threads may outlive the interpreter


if __name__ == "__main__":
    main()
