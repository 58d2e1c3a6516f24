"""A process that compiles sharded einsums for GPUs, or runs them on virtual CPU devices.

It reads one JSON object a line, `{"line": "A[I_X, J] @ B[J, K] -> C[I_X, K]", "mesh": {"X": 4}, "sizes": {"I": 64,
…}}`, and answers each with one line: `compile` gives `{"hlo": …}`, `check` gives `{"equal": …}` where the sharded
einsum has been run and compared, exactly, with the unsharded one on small whole numbers.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dragonscale.evidence.xla.gpu_target import ENVIRONMENT, devices
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import Array, Einsum, parse_einsum
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from tests.own_process import run_worker, virtual_devices

BATCH = 200
"""Cases given to one process."""


def compiled_text(function: Callable[..., Any], shapes: Sequence[Any], in_shardings: Any, out_shardings: Any) -> str:
    """The optimised HLO text of a function on abstract arguments; shardings are JAX's."""
    import jax

    jitted = jax.jit(function, in_shardings=in_shardings, out_shardings=out_shardings)
    text = jitted.lower(*shapes).compile().as_text()
    assert text is not None
    return text


@dataclass(frozen=True)
class Case:
    """One einsum line with the sizes of its indices and of the mesh axes."""

    line: Einsum
    sizes: dict[str, int]
    mesh: dict[str, int]

    @property
    def chips(self) -> int:
        return math.prod(self.mesh.values())

    def to_json(self) -> str:
        return json.dumps({"line": str(self.line), "sizes": self.sizes, "mesh": self.mesh})

    @staticmethod
    def from_json(text: str) -> "Case":
        given = json.loads(text)
        return Case(parse_einsum(given["line"]), given["sizes"], given["mesh"])


def compile_cases(cases: list[Case]) -> list[str | None]:
    """The HLO text of each case, compiled for H100s in processes of their own; None where XLA aborted."""
    return [None if answer is None else answer["hlo"] for answer in _answers("compile", cases, ENVIRONMENT)]


def check_cases(cases: list[Case]) -> list[bool | None]:
    """Whether XLA's own partitioning of each case computes the right numbers on virtual CPU devices; None where it
    aborted."""
    environment = virtual_devices(max(case.chips for case in cases))
    return [None if answer is None else answer["equal"] for answer in _answers("check", cases, environment)]


def _answers(what: str, cases: list[Case], environment: dict[str, str]) -> list[dict[str, Any] | None]:
    """One answer for each case. An abort ends the process: the case it was at has no answer, and the
    next one starts."""
    answers: list[dict[str, Any] | None] = []
    while len(answers) < len(cases):
        batch = cases[len(answers) : len(answers) + BATCH]
        given = "\n".join(case.to_json() for case in batch)
        ended = run_worker(["-m", "tests.sharding.xla.einsum_worker", what], given, environment)
        answers += [json.loads(answer) for answer in ended.output.splitlines()]
        if ended.code:
            answers.append(None)
    return answers


def formula_of(line: Einsum) -> str:
    """The einsum as NumPy writes it."""
    letters = dict(zip(line.indices, "abcdefghijklmnopqrstuvwxyz", strict=False))
    left, right, out = ("".join(letters[name] for name in array.names) for array in (*line.operands, line.output))
    return f"{left},{right}->{out}"


def shape_of(array: Array, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[name] for name in array.names)


@lru_cache
def _gpus(count: int) -> list[Any]:
    return devices(load_chip("h100"), count)


def _shardings(case: Case, chips: list[Any]) -> list[Any]:
    import numpy as np
    from jax.sharding import Mesh, NamedSharding

    mesh = Mesh(np.array(chips).reshape(tuple(case.mesh.values())), tuple(case.mesh))
    return [NamedSharding(mesh, to_partition_spec(array)) for array in (*case.line.operands, case.line.output)]


def _compile(case: Case) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    *given, wanted = _shardings(case, _gpus(case.chips))
    shapes = [jax.ShapeDtypeStruct(shape_of(array, case.sizes), jnp.bfloat16) for array in case.line.operands]
    formula = formula_of(case.line)
    text = compiled_text(lambda left, right: jnp.einsum(formula, left, right), shapes, tuple(given), wanted)
    return {"hlo": text}


def _check(case: Case) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    *given, wanted = _shardings(case, jax.devices()[: case.chips])
    random = np.random.default_rng(0)
    operands = [random.integers(-4, 5, shape_of(array, case.sizes)).astype(np.float32) for array in case.line.operands]
    formula = formula_of(case.line)
    sharded = jax.jit(lambda *arrays: jnp.einsum(formula, *arrays), in_shardings=tuple(given), out_shardings=wanted)
    return {"equal": bool(np.array_equal(np.asarray(sharded(*operands)), np.einsum(formula, *operands)))}


def main() -> None:
    """Answer the cases on stdin."""
    answer = {"compile": _compile, "check": _check}[sys.argv[1]]
    for line in sys.stdin:
        print(json.dumps(answer(Case.from_json(line))), flush=True)


if __name__ == "__main__":
    main()
