"""Programs are faithful: every tensor that a line reads was made by a line before it, with the same dims."""

import json
from pathlib import Path

import pytest

from dragonscale.models import load_config, load_model, model_names
from dragonscale.models.catalogue import preset
from dragonscale.models.layer import Both, Layer
from dragonscale.models.mamba import Mamba2, ShortConv
from dragonscale.models.program import Section, dim_size, parse_op
from dragonscale.models.transformer import layer_section

FROM_OUTSIDE = {"R", "L", "E", "S", "S2", "T_hash", "I", "H0"}
"""The residual stream, a layer's own input, an embedding given to a module, a state, a hash table, pixels, what a tower
hands its bridge."""


def check_dataflow(section: Section) -> None:
    made: dict[str, tuple[str, ...]] = {}
    caches = any(op.function == "cache" for op in section.ops)
    outside = FROM_OUTSIDE if caches else FROM_OUTSIDE | {"K", "V"}  # a layer may borrow an earlier one's keys
    for op in section.ops:
        for array in op.inputs:
            if op.function == "cache":
                continue
            assert array.name in made or array.name in outside or section.name == "head", (section.name, op)
            # A key that is attended to was made for the new tokens (t) and is read for all of them (s).
            dims = tuple("t" if name == "s" else name for name in array.names)
            assert made.get(array.name, dims) == dims, (section.name, str(op), made[array.name])
        for array in op.arrays:
            for dim in array.dims:
                if dim.name not in ("b", "t", "s", "m"):
                    assert dim_size(section.dims, dim.name, str(op)) > 0
        if op.output is not None:
            made[op.output.name] = op.output.names


@pytest.mark.parametrize("name", model_names())
def test_every_preset_is_a_faithful_program(name):
    program = load_model(name).program()
    assert program.order, name
    for section in (*program.sections, *program.extras):
        check_dataflow(section)


def test_sections_repeat_as_often_as_the_layers_they_stand_for():
    for name in model_names():
        model = load_model(name)
        program = model.program()
        repeats = {section.name: section.repeat for section in program.sections}
        assert {kind: program.order.count(kind) for kind in set(program.order)} == {
            kind: repeats[kind] for kind in set(program.order)
        }
        assert len(program.order) == model.n_layers


def test_mixers_without_a_preset_are_faithful_too():
    mamba = Mamba2(8, 16, 32, 2, proj_bias=True, out_bias=True)
    from dragonscale.models import Attention, Mlp

    for mixer in (mamba, ShortConv(128, 3, True), Both(Attention(4, 2, 32), mamba)):
        check_dataflow(layer_section(Layer(mixer, Mlp(256)), 128, "block", 1))


def test_lines_survive_being_printed():
    for name in ("deepseek-v4-flash", "qwen3.5-397b-a17b", "gpt-oss-120b", "llama4-scout"):
        for section in load_model(name).program().sections:
            for op in section.ops:
                assert parse_op(str(op)) == op


def test_equal_layers_share_a_section():
    model = load_model("gemma3-27b")
    assert [section.name for section in model.program().sections] == ["embed", "block0", "block1", "head"]
    assert [section.repeat for section in model.program().sections] == [1, 52, 10, 1]
    assert preset("gemma3-27b")["text_config"]["num_hidden_layers"] == 62


def test_every_family_is_a_faithful_program():
    here = Path(__file__).parent
    for name in ("counted_small", "counted_towers", "published"):
        for line in (here / f"{name}.jsonl").read_text().splitlines():
            program = load_config(json.loads(line)["config"]).program()
            for section in (*program.sections, *program.extras):
                check_dataflow(section)
