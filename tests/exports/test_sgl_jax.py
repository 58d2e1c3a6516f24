"""sgl-jax: devices of a chip, limits of a rank and of the server, what it refuses."""

import json

import pytest

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.engines.checkpoints import pool_read
from dragonscale.exports.imported import Given, Source
from dragonscale.exports.reading import read_plan
from dragonscale.exports.shell import read_commands
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.engine.plan import ServingPlan


def _words(plan: str, model: str, on: str, **more) -> list[str]:
    made = ds.export(plan, model=model, on=on, to="sgl-jax", prompt="1024", output="256", **{"batch": "64", **more})
    return read_commands(made.files["sgl-jax.sh"])[-1].words


def _value(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_a_tpu7x_chip_is_two_devices() -> None:
    words = _words("tensor=4,expert=4", "qwen3-30b-a3b", "tpu7x:2x2x1")
    assert [_value(words, name) for name in ("--tp-size", "--ep-size")] == ["8", "8"]
    back = read_plan(" ".join(words), Given("", "tpu7x:2x2x1")).file.plan
    assert (back.tensor, back.expert) == (4, 4)


def test_sequences_are_the_servers_and_chunks_those_of_a_rank() -> None:
    words = _words("tensor=2,data=4,expert=8", "qwen3-30b-a3b", "v6e:2x4")
    found = [
        _value(words, name) for name in ("--tp-size", "--dp-size", "--max-running-requests", "--chunked-prefill-size")
    ]
    assert found == ["8", "4", "64", "4096"]
    at = words.index("--precompile-bs-paddings")
    assert words[at + 1 : at + 3] == ["32", "64"]  # 8 and 16 of each rank
    back = read_plan(" ".join(words), Given("", "v6e:2x4")).file
    assert (back.plan.tensor, back.plan.data, back.launch.max_seqs, back.launch.token_budget) == (2, 4, 16, None)


@pytest.mark.parametrize(
    ("formats", "on", "config"),
    [
        ("weights=int8,compute=int8", "v6e:2x4", "int8_w8a8.yaml"),
        ("weights=fp8,compute=bf16", "v6e:2x4", "fp8.yaml"),
        ("weights=fp8,compute=fp8", "tpu7x:2x2x2", "fp8_w8a8.yaml"),
    ],
)
def test_weights_are_quantised_as_a_yaml_says(formats: str, on: str, config: str) -> None:
    words = _words(f"tensor=8,{formats}", "llama3-70b", on)
    assert _value(words, "--quantization-config-path") == config
    back = read_plan(" ".join(words), Given("", on)).file.plan
    assert f"weights={back.weights},compute={back.compute}" == formats


def test_what_sgl_jax_refuses_is_refused_here(tmp_path) -> None:
    (tmp_path / "plan.toml").write_text(
        'model = "llama3-8b"\nslice = "v6e:2x2"\nbatch = 16\n[plan]\ntensor = 4\n[launch]\ntoken_budget = 1000\n'
        "[traffic]\nprompt = 512\noutput = 128\n",
        encoding="utf-8",
    )
    with pytest.raises(Infeasible, match="--token-budget 1024"):
        ds.export(str(tmp_path / "plan.toml"), to="sgl-jax")


@pytest.mark.parametrize(
    ("flags", "why"),
    [("--tp-size 7", "2 devices"), ("--tp-size 8 --dp-size 3", "--dp-size"), ("--tp 8 --ep-size 3", "--ep-size")],
)
def test_a_wrong_value_is_one_sentence(flags: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_plan(f"python -m sgl_jax.launch_server --model-path Qwen/Qwen3-30B-A3B {flags}", Given("", "tpu7x:2x2x1"))


def test_a_pool_lies_on_the_slice_that_the_header_has_for_its_plan() -> None:
    plan = ServingPlan(8)
    kept = json.dumps({"prefill": {"slice": "v5e:2x4", "plan": str(plan), "replicas": 3}})
    source, torus = Source(f"# dscale: {kept}\n"), parse_slice("v6e:2x4")
    assert pool_read(source, plan, torus, 1) == {"plan": str(plan), "slice": "v5e:2x4", "replicas": 3}
    assert pool_read(source, ServingPlan(4), parse_slice("h100:8"), 1)["slice"] == "h100:4"
    assert pool_read(Source(""), plan, torus, 2) == {"plan": str(plan), "slice": "v6e:2x4", "replicas": 2}
    assert pool_read(Source(""), ServingPlan(4), torus, 2)["slice"] == ""
