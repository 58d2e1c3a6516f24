"""What cannot be understood is refused by name, in one sentence, whatever it is."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragonscale.errors import InputError
from dragonscale.models import count_parameters, load_config, load_model
from dragonscale.models.catalogue import neighbours
from dragonscale.models.huggingface import model_types
from dragonscale.models.huggingface.fields import INERT, INERT_WHILE_OFF

CONFIGS = sorted(Path(__file__).with_name("configs").glob("*.json"))
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
}

words = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def refused(source) -> str:
    with pytest.raises(InputError) as caught:
        load_config(source)
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 2000
    return said


def tolerate(read) -> None:
    """Whatever is wrong, it is said in one sentence."""
    sentence = ""
    try:
        read()
    except InputError as error:
        sentence = str(error)
    assert "\n" not in sentence


def test_an_unknown_field_is_named_with_its_model_type():
    said = refused(LLAMA | {"num_loops": 3})
    assert "num_loops" in said
    assert "llama" in said


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_no_real_config_hides_a_new_field(path):
    given_fields = json.loads(path.read_text())
    assert "memory_layers" in refused(given_fields | {"memory_layers": 4})
    if "text_config" in given_fields:
        assert "memory_layers" in refused(
            given_fields | {"text_config": given_fields["text_config"] | {"memory_layers": 4}}
        )


def test_a_switch_that_would_matter_is_refused_only_when_on():
    assert load_config(LLAMA | {"num_experts": 0, "use_sliding_window": False})
    assert "num_experts" in refused(LLAMA | {"num_experts": 8})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"hidden_size": -4}, "hidden_size = -4"),
        ({"hidden_size": 0}, "hidden_size = 0"),
        ({"hidden_size": "64"}, "hidden_size = '64'"),
        ({"hidden_size": 64.5}, "hidden_size = 64.5"),
        ({"hidden_size": True}, "hidden_size = True"),
        ({"hidden_size": [64]}, "hidden_size"),
        ({"hidden_size": 10**30}, "whole number"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_attention_heads": 7}, "evenly"),
        ({"num_key_value_heads": 3}, "not a multiple"),
        ({"tie_word_embeddings": "yes"}, "true or false"),
        ({"attention_bias": 1}, "true or false"),
        ({"model_type": "lama", "num_loops": 3}, "nearest to those of llama, except for num_loops = 3"),
        ({"model_type": ""}, "model_type"),
        ({"model_type": 3}, "model_type"),
        ({"quantization_config": {"quant_method": "magic"}}, "magic"),
        ({"quantization_config": []}, "quantization_config"),
    ],
)
def test_wrong_values(change, said):
    assert said in refused(LLAMA | change)


@pytest.mark.parametrize("missing", ["hidden_size", "num_hidden_layers", "vocab_size", "model_type"])
def test_missing_sizes(missing):
    assert missing in refused({key: value for key, value in LLAMA.items() if key != missing})


def test_two_names_of_one_field_must_agree():
    config = json.loads((Path(__file__).with_name("configs") / "openai--gpt-oss-120b.json").read_text())
    assert "experts_per_token" in refused(config | {"experts_per_token": 5})


def test_a_list_of_layers_must_have_one_entry_for_each():
    config = json.loads((Path(__file__).with_name("configs") / "openai--gpt-oss-120b.json").read_text())
    assert "36 names" in refused(config | {"layer_types": ["full_attention"]})
    assert "'spiral'" in refused(config | {"layer_types": ["spiral"] * 36})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"7",
        b"\xff\xfe\x00",
        b"[" * 200_000,
        b"9" * 100_000,
        b"{" + b'"a":' * 100_000,
        b"x" * 10_000_000,
    ],
    ids=["empty", "open", "list", "null", "number", "bytes", "deep", "long", "nested", "huge"],
)
def test_files_that_are_no_configs(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    refused(path)
    with pytest.raises(InputError):
        load_model(path)


def test_files_that_are_not_there(tmp_path):
    refused(tmp_path / "config.json")
    refused(tmp_path)


@given(st.dictionaries(words | st.sampled_from(sorted(LLAMA)), values, max_size=6), st.sampled_from(model_types()))
@settings(max_examples=150, deadline=None)
def test_garbage_gives_only_input_errors(fields, model_type):
    tolerate(lambda: count_parameters(load_config(fields | {"model_type": model_type})))


@given(st.sampled_from(CONFIGS), st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_real_config_with_one_field_spoilt(path, data):
    config = json.loads(path.read_text())
    place = config["text_config"] if "text_config" in config and data.draw(st.booleans()) else config
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(values)
    tolerate(lambda: count_parameters(load_config(config)))


@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_in_a_file(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    tolerate(lambda: load_config(path))


@given(st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_any_text_as_a_name(name):
    tolerate(lambda: load_model(name))


def test_lists_of_inert_fields_do_not_overlap():
    assert not INERT & INERT_WHILE_OFF
    assert not INERT & {"hidden_size", "head_dim", "sliding_window", "num_experts", "layer_types", "vocab_size"}


def test_a_diffusion_model_is_said_to_be_none_of_ours() -> None:
    with pytest.raises(InputError, match="of a FluxTransformer2DModel of diffusers; only Transformers of tokens"):
        load_config({"_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.30.0", "num_layers": 19})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gemma3-embedding-4b", "its base (the nearest here: gemma3-4b) with --output 0"),
        ("llama3.1-vision-8b", "dscale simulate llama3.1-8b --on h100:1 --rate 1/s --images"),
        ("5000B", "dscale estimate --params 5000B"),
    ],
)
def test_a_name_of_no_preset_says_what_it_is_planned_as(name: str, told: str) -> None:
    with pytest.raises(InputError, match="There is no model") as refusal:
        load_model(name)
    assert told in str(refusal.value)
    assert "did you mean" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "near", "far"),
    [
        ("qwen4-8b", ["qwen3-8b"], ["qwen3-32b", "qwen2.5-72b"]),
        ("gemma5-27b", ["gemma3-27b", "gemma4-31b"], ["gemma3-4b", "gemma-2b"]),
        ("lama3-70b", ["llama3-70b", "llama3.3-70b"], ["llama3-8b"]),
        ("claude-3", [], ["cl"]),
    ],
)
def test_neighbours_are_of_the_same_family_and_size(name: str, near: list[str], far: list[str]) -> None:
    suggested = neighbours(name)
    assert set(near) <= set(suggested)
    assert not set(far) & set(suggested)
