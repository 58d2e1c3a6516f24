"""Nothing compiles under load: an engine as a worker builds it, asked for everything at once."""

import json
from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("llguidance")

from dragonscale.runtime.serve.requests import GenerateRequest, HandedOver, Sampling  # noqa: E402
from dragonscale.runtime.server.building import build_engine  # noqa: E402
from dragonscale.runtime.server.text import plain_text  # noqa: E402
from dragonscale.runtime.server.wire import WorkerOrder  # noqa: E402
from tests.runtime.serve.invariants import check_engine  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

HOW: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.7},
    {"top_p": 0.5, "seed": 1},
    {"presence": 1.0, "logprobs": 3},
    {"temperature": 0, "logprobs": 1},
    {"bias": {3: 5.0}},
    {"grammar": ("regex", "[ab]{3,9}")},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "drafts", [{"draft": "ngram", "draft_tokens": 2}, {"draft": "itself", "draft_tokens": 2}], ids=str
)
def test_nothing_compiles_under_load(tmp_path: Path, drafts: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({**CONFIGS["llama"], "num_hidden_layers": 1, "vocab_size": 256, "eos_token_id": 1})
    )
    plain_text(256).tokenizer.save(str(tmp_path / "tokenizer.json"))
    if drafts.get("draft") == "itself":
        drafts = drafts | {"draft": str(tmp_path)}
    order = WorkerOrder(
        model=str(tmp_path),
        plan="weights=fp32,kv=fp32,compute=fp32",
        length=64,
        sequences=2,
        tokens=32,
        page=4,
        pages=24,
        tokenizer=str(tmp_path),
        **drafts,
    )
    engine, _ = build_engine(order, lambda *_: None)
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, _seconds, **_more: compiled.append(name) if "backend_compile" in name else None
    )
    try:
        for at, how in enumerate(HOW * 2):
            prompt = [(at * 7 + place) % 256 for place in range(1 + 9 * (at % 5))]
            engine.add(GenerateRequest(id=str(at), prompt=prompt, length=9, sampling=Sampling(**how)))
        engine.add(GenerateRequest(id="embedded", prompt=[5] * 20, embed=True))
        engine.add(GenerateRequest(id="scored", prompt=[5] * 20, length=2, prompt_logprobs=2))
        pages = engine.runner.read_pages(0, [3, 4])
        handed = HandedOver(tokens=[7], computed=8, contents=pages)
        engine.add(GenerateRequest(id="handed", prompt=[9] * 8, length=5), handed)
        engine.cancel("3")
        said = []
        while not engine.idle:
            said += engine.step()
            check_engine(engine)
        assert not [one.why for one in said if one.finish not in ("", "length", "stop", "cancelled")]
        engine.add(GenerateRequest(id="lost", prompt=[5] * 20, length=5))
        jax.tree.map(lambda array: array.delete(), engine.runner.cache)
        said = engine.step()
        engine.add(GenerateRequest(id="after", prompt=[6] * 20, length=5))
        while not engine.idle:
            said += engine.step()
        assert [(one.id, one.finish) for one in said if one.finish] == [("lost", "error"), ("after", "length")]
        assert not compiled
        jax.jit(lambda x: 3.25 * x)(1.0)
        assert compiled, "the test sees what is compiled"
    finally:
        jax.monitoring.clear_event_listeners()
