"""The example that trains and serves, without the two long parts: `tests/repository` runs all of it with the slow
tests."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("tokenizers")

from dragonscale.models import load_model  # noqa: E402
from dragonscale.runtime.checkpoint import save_folder  # noqa: E402
from dragonscale.runtime.parameters import each_weight  # noqa: E402
from dragonscale.runtime.server.building import open_model  # noqa: E402
from dragonscale.runtime.train.settings import read_order  # noqa: E402

ROOT = Path(__file__).parents[3]


def test_what_is_trained_is_what_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import train_and_serve as example

    monkeypatch.delitem(sys.modules, "train_and_serve")
    example.prepare(tmp_path, steps=3)
    order = read_order(str(tmp_path / "plan.toml"))
    assert (order.plan.chips, order.run.steps) == (8, 3)
    program = load_model(tmp_path / "model.json").program()
    draw = np.random.default_rng(0)
    params: Any = each_weight(program, lambda _, weight: jax.numpy.asarray(draw.normal(size=weight.shape), "float32"))
    save_folder(tmp_path / "served", tmp_path / "model.json", params, program)
    served = open_model(str(tmp_path / "served"))
    np.testing.assert_array_equal(served.read("block", "Wo", 1), params["block"]["Wo"][1])
    np.testing.assert_array_equal(served.read("embed", "W_embed", 0), params["embed"]["W_embed"])
    asked = next(iter(example.TALKS))
    assert served.text.ends == [1]
    assert served.text.decode(served.text.chat([{"role": "user", "content": asked}]), False) == (
        f"<|begin|><|user|>{asked}<|assistant|>"
    )
    # the prompt is the beginning of what it was taught
    taught = np.fromfile(tmp_path / "talks.bin", "<u2").tolist()
    prompt = served.text.chat([{"role": "user", "content": asked}])
    assert any(taught[at : at + len(prompt)] == prompt for at in range(len(taught)))
