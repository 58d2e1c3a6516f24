"""The whole engine beside the reference implementation: the tokens that `transformers` wrote are the tokens that are
served."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.models import load_model  # noqa: E402
from dragonscale.runtime.checkpoint import tensor_reader  # noqa: E402
from dragonscale.runtime.numerics import numerics_of  # noqa: E402
from dragonscale.runtime.safetensors import SafeTensors  # noqa: E402
from dragonscale.runtime.serve.engine import ServingEngine  # noqa: E402
from dragonscale.runtime.serve.requests import GenerateRequest, Sampling  # noqa: E402
from dragonscale.runtime.serve.runner import ModelRunner  # noqa: E402
from dragonscale.runtime.serve.sampling import Sampler  # noqa: E402
from dragonscale.runtime.serve.steps import EngineLimits, shapes_for  # noqa: E402
from dragonscale.serving.engine.plan import ServingPlan, parse_serving_plan  # noqa: E402
from tests.runtime.serve.invariants import check_engine  # noqa: E402

REFERENCES = Path(__file__).parent.parent / "references"
LIMITS = EngineLimits(pages=24, page=4, sequences=2, tokens=8, length=32)
CASES = [("llama", "tensor=2")] + [
    (path.name, "") for path in sorted(REFERENCES.iterdir()) if (path / "config.json").exists()
]


def engine(folder: Path, plan: ServingPlan) -> ServingEngine:
    program = load_model(folder).program()
    given = (program, numerics_of(folder), plan, jax.devices()[: plan.chips])
    placement = ModelRunner(*given, None, LIMITS, jnp.float32).placement
    runner = ModelRunner(*given, placement.put(tensor_reader(SafeTensors(folder), program)), LIMITS, jnp.float32)
    sampler = Sampler(LIMITS, program.sections[0].dims["v"], runner.mesh, 0)
    shapes = shapes_for(LIMITS)
    runner.compile(shapes, moves=False)
    return ServingEngine(runner, sampler, LIMITS, shapes)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "plan"), CASES)
def test_served_tokens_are_those_of_transformers(family: str, plan: str, eight: list[Any]) -> None:
    """Two at once, one of them behind a cached prefix, in chunks of a prompt."""
    assert len(eight) == 8
    expected = json.loads((REFERENCES / family / "expected.json").read_text())
    made = engine(REFERENCES / family, parse_serving_plan(plan) if plan else ServingPlan())
    told: dict[str, list[int]] = {}
    greedy = Sampling(temperature=0, logprobs=0)
    for name in "abc":
        made.add(GenerateRequest(id=name, prompt=expected["tokens"], sampling=greedy, length=10))
    scores: list[float] = []
    while not made.idle:
        for said in made.step():
            told.setdefault(said.id, []).extend(said.tokens)
            scores += [one.logprob for one in said.logprobs][: 1 if len(scores) == 0 else 0]
        check_engine(made)
    assert told == dict.fromkeys("abc", expected["greedy"])
    last = np.array(expected["logits"][-1])
    assert scores[0] == pytest.approx(float((last - np.logaddexp.reduce(last)).max()), abs=1e-3)
