"""Models as they are loaded to be served: the reference implementation's logits, what is saved and read again, what is
wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.listener import Listener  # noqa: E402
from dragonscale.models import load_model  # noqa: E402
from dragonscale.runtime.checkpoint import (  # noqa: E402
    as_numbers,
    load_weights,
    save_folder,
    save_weights,
)
from dragonscale.runtime.forward import forward  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import numerics_of  # noqa: E402
from dragonscale.runtime.parameters import each_weight, weights_of  # noqa: E402
from dragonscale.runtime.safetensors import SafeTensors  # noqa: E402
from dragonscale.runtime.server.building import open_model  # noqa: E402
from dragonscale.runtime.train.checkpoints import Checkpoints  # noqa: E402

REFERENCES = Path(__file__).parent.parent / "references"
QUICK: Any = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
LONGER = dict.fromkeys(("gemma2", "gemma3_text", "mixtral", "qwen3"), pytest.mark.slow)
FAMILIES = sorted(path.name for path in REFERENCES.iterdir() if (path / "config.json").exists())


@pytest.mark.parametrize("family", [pytest.param(one, marks=LONGER.get(one, ())) for one in FAMILIES])
def test_logits_and_greedy_tokens_are_those_of_transformers(family: str) -> None:
    """The checkpoints, their logits and the tokens that follow greedily are what `transformers` made of them."""
    folder = REFERENCES / family
    expected = json.loads((folder / "expected.json").read_text())
    program, numerics = load_model(folder).program(), numerics_of(folder)
    params = load_weights(SafeTensors(folder), program, np.float32)
    whole = [*expected["tokens"], *expected["greedy"]]
    run = jax.jit(lambda p, t: forward(p, program, t, PassSetting(numerics)), compiler_options=QUICK)
    found = np.asarray(run(params, jnp.asarray([whole])))[0]
    known = len(expected["tokens"])
    np.testing.assert_allclose(found[:known], expected["logits"], atol=3e-5)
    assert found[known - 1 : -1].argmax(-1).tolist() == expected["greedy"]


@pytest.mark.parametrize("family", FAMILIES)
def test_saving_is_the_inverse_of_loading(family: str) -> None:
    """Every tensor that `transformers` wrote, under its name and with its values; no other."""
    tensors = SafeTensors(REFERENCES / family)
    program = load_model(REFERENCES / family).program()
    dtype: Any = ml_dtypes.bfloat16
    written = save_weights(load_weights(tensors, program, dtype), program, family, dtype)
    assert set(written) == set(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(written[name].reshape(tensor.shape), tensor.astype(dtype), err_msg=name)


def test_a_folder_is_written_and_opened(tmp_path: Path) -> None:
    folder = REFERENCES / "llama"
    program = load_model(folder).program()
    params = drawn(program)
    save_folder(tmp_path, folder, params, program)
    shutil.copyfile(folder / "config.json", tmp_path / "other.json")
    listener = Counted()
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        open_model(str(tmp_path))
    found = open_model(str(tmp_path), tokenizer=str(tokenizer_folder(tmp_path / "text")), listener=listener)
    for section, weights in weights_of(program).items():
        for name, weight in weights.items():
            layers = range(weight.shape[0]) if weight.stacked else [0]
            read = np.stack([found.read(section, name, layer) for layer in layers])
            np.testing.assert_array_equal(read.reshape(weight.shape), params[section][name])
    assert listener.seen[-1] == (len(listener.seen), len(listener.seen))
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]


def drawn(program: Any) -> Any:
    draw = np.random.default_rng(0)
    return each_weight(program, lambda _, weight: draw.normal(size=weight.shape).astype(np.float32))


class Counted(Listener):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def step(self, done: int, total: int) -> None:
        self.seen.append((done, total))


def tokenizer_folder(path: Path) -> Path:
    from dragonscale.runtime.server.text import plain_text

    path.mkdir()
    plain_text(40).tokenizer.save(str(path / "tokenizer.json"))
    return path


def test_a_training_checkpoint_is_read_by_weight(tmp_path: Path) -> None:
    config = str(REFERENCES / "llama" / "config.json")
    program = load_model(config).program()
    params = drawn(program)
    kept = Checkpoints(str(tmp_path / "run"), 2, {})
    kept.save(7, {"step": jnp.int32(7), "params": jax.tree.map(jnp.asarray, params), "optimizer": {"m": jnp.zeros(3)}})
    kept.finish(7)
    kept.close()
    text = str(tokenizer_folder(tmp_path / "text"))
    found = open_model(config, weights=str(tmp_path / "run"), tokenizer=text)
    np.testing.assert_array_equal(found.read("block", "Wq", 1), params["block"]["Wq"][1])
    np.testing.assert_array_equal(found.read("head", "W_head", 0), params["head"]["W_head"])
    other = open_model(str(REFERENCES / "mixtral" / "config.json"), weights=str(tmp_path / "run"), tokenizer=text)
    with pytest.raises(InputError, match="Wu of block"):
        other.read("block", "Wu", 0)


def test_random_weights_are_made_on_the_device() -> None:
    config = str(REFERENCES / "llama" / "config.json")
    first, again = (open_model(config, random=True) for _ in range(2))
    query = first.read("block", "Wq", 0)
    assert isinstance(query, jax.Array)
    assert query.dtype == jnp.bfloat16
    assert (query == again.read("block", "Wq", 0)).all()
    assert (query != first.read("block", "Wq", 1)).any()
    assert np.std(np.asarray(query, np.float32)) == pytest.approx(16**-0.5, rel=0.2)
    assert (np.asarray(first.read("block", "w_ffn", 0)) == 1).all()
    assert first.text.decode(first.text.encode("!")) == "!"


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"'llama3-8b' is known by name only; give its folder, .* --load-weights, or --random"
    ):
        open_model("llama3-8b")
    with pytest.raises(InputError, match="There is no folder"):
        open_model("llama3-8b", weights=str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"holds no \.safetensors file"):
        open_model("llama3-8b", weights=str(tmp_path))


def test_narrow_tensors() -> None:
    scales = np.array([[2.0, 4.0]], np.float32)
    values = np.ones((3, 130)).astype(ml_dtypes.float8_e4m3fn)
    found = as_numbers({"a": values, "a_scale_inv": scales}, "a").astype(np.float32)
    assert (found[:, :128] == 2).all()
    assert (found[:, 128:] == 4).all()
    blocks = np.full((1, 1, 16), 0x92, np.uint8)  # 1.0 and -0.5
    made = as_numbers({"b_blocks": blocks, "b_scales": np.array([[129]], np.uint8)}, "b_blocks").astype(np.float32)
    assert made.shape == (1, 32)
    assert made[0, :2].tolist() == [4.0, -2.0]
    # Scales are exponents with a bias of 127, up to 254: half a byte's range lies above what a signed byte holds.
    for exponent in (1, 126, 128, 200):
        scaled = as_numbers({"b_blocks": blocks, "b_scales": np.array([[exponent]], np.uint8)}, "b_blocks")
        assert scaled.astype(np.float32)[0, 0] == 2.0 ** (exponent - 127)
    with pytest.raises(InputError, match="scales that are not known"):
        as_numbers({"c": values}, "c")
