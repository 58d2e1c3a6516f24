"""The table of what trainers build, which the planner chooses stacks by, says what exports accept."""

import functools

import pytest

from dragonscale.errors import Infeasible
from dragonscale.exports.judges import stack_for
from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.software import software
from dragonscale.exports.target import Target, of_kind, software_for, target_named
from dragonscale.exports.trainers.torchtitan.titan_models import flavors
from dragonscale.models import load_model
from dragonscale.models.catalogue import model_names
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.training.plan.auto import auto_choice, auto_choices
from dragonscale.training.plan.builds import meant, release_of, trainer_of, trainers, unbuilt
from dragonscale.training.plan.plan_file import TrainingFile, parse_plan
from dragonscale.training.plan.stack import stacks

TARGETS = [target.name for target in of_kind("training")]
CHIPS = ("h100:8", "gb200:8", "b200:8", "mi300x:8", "v100:8", "v5p:2x2x2")


@functools.cache
def refusal(target: str, model: str, on: str = "") -> str:
    """Why an export of a plain plan of a model is refused for what the model is; empty where it is written."""
    own = target_named(target)
    where = parse_slice(on or ("v5p:2x2x2" if target == "maxtext" else "h100:8"))
    zero = 1 if "megatron" in target else 3
    file = TrainingFile(parse_plan(f"fsdp8 z{zero} block"), model, str(where), stack_for(own, ""), batch=64, seq=4096)
    return _written(own, file, where)


def _written(target: Target, file: TrainingFile, where: Slice) -> str:
    try:
        software(target).write(TrainingRun(file, load_model(file.model), model_fields(file.model), where))
    except Infeasible as error:
        return str(error)
    return ""


@pytest.mark.parametrize("target", TARGETS)
def test_the_table_and_the_exporter_agree(target: str) -> None:
    stack = stack_for(target_named(target), "")
    for name in model_names():
        known, written = unbuilt(stack, load_model(name)), refusal(target, name)
        assert bool(known) == bool(written), (name, known, written)


BUILT = {
    "megatron": ("llama3-70b", "gpt3-175b", "mixtral-8x7b", "qwen2.5-7b", "deepseek-v3"),
    "megatron-bridge": ("llama3-8b", "qwen3-8b", "gemma2-9b", "deepseek-v3", "gpt-oss-20b"),
    "torchtitan": ("llama3-8b", "llama3.1-405b", "deepseek-v3"),
    "maxtext": ("llama2-7b", "gemma2-9b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b"),
    "deepspeed": ("llama3-8b", "gpt2-xl", "gpt-neox-20b", "olmo2-7b", "mixtral-8x7b"),
    "accelerate": ("llama3-8b", "gpt2-xl", "gpt-neox-20b", "olmo2-7b", "mixtral-8x7b"),
    "axolotl": ("qwen3-8b", "kimi-linear-48b-a3b"),
    "trl": ("qwen3-8b", "gpt2"),
    "torchtune": ("llama3-8b", "gemma2-9b"),
}
NOT_BUILT = {
    "megatron": ("gemma2-9b", "falcon-40b", "kimi-linear-48b-a3b"),
    "megatron-bridge": ("palm-540b", "bloom-176b"),
    "torchtitan": ("gpt2-xl", "gemma2-9b", "falcon-40b"),
    "maxtext": ("bloom-176b", "falcon-40b"),
    "deepspeed": ("palm-540b",),
    "accelerate": ("palm-540b",),
    "axolotl": ("palm-540b",),
    "trl": ("palm-540b",),
    "torchtune": ("mixtral-8x7b", "deepseek-v3"),
}
"""Written by hand: some exporters refuse what the table says, so the two would agree on a wrong row as well. PaLM has no
public weights or code; the others are in the lists of supported models of each software, or in none."""


@pytest.mark.parametrize("target", BUILT)
def test_the_table_has_what_is_known_of_each_software(target: str) -> None:
    stack = stack_for(target_named(target), "")
    assert [name for name in BUILT[target] if unbuilt(stack, load_model(name)) or refusal(target, name)] == []
    wrong = [name for name in NOT_BUILT[target] if not unbuilt(stack, load_model(name)) or not refusal(target, name)]
    assert wrong == []


def test_a_refusal_says_what_only_is_built() -> None:
    trainer = trainers()["torchtitan"]
    fields = {"model_type": "mistral", "sliding_window": 4096}
    assert trainer.refuses(fields, "config.json").endswith(" builds mistral models only without sliding_window")
    edited = trainers()["megatron-bridge"].refuses({"model_type": "gemma2"}, "gemma2-9b?hidden_size=8")
    assert edited.endswith("builds gemma2 models only from a config on the Hub")
    sized = trainer.refuses({"model_type": "gpt_oss", "hidden_size": 8}, "config.json")
    assert sized.endswith("has gpt_oss models only in the sizes of gpt_oss/120b, gpt_oss/20b")


@pytest.mark.parametrize(("model", "built"), [("gemma2-9b", True), ("olmo2-32b", False), ("gemma3-27b", False)])
def test_another_target_is_suggested_only_where_it_builds_the_model(model: str, built: bool) -> None:
    assert ("--to megatron-bridge" in refusal("megatron", model)) == built
    assert (refusal("megatron-bridge", model) == "") == built


@pytest.mark.parametrize("on", CHIPS)
def test_what_auto_recommends_is_exported_or_said_not_to_be_built(on: str) -> None:
    for name in model_names():
        model = load_model(name)
        choice = auto_choice(parse_slice(on), model)
        for stack in choice.stacks:
            target = software_for(stack, "training")
            trainer = trainer_of(stack)
            if trainer is not None and not trainer.exported:
                assert target is None, stack
                assert not unbuilt(stack, model), (stack, name)
                continue
            assert target is not None, stack
            if choice.unbuilt:
                assert "no trainer that --stack auto weighs" in choice.why
                assert unbuilt(stack, model)
            else:
                assert refusal(target.name, name) == "", (stack, name)


def test_releases_are_those_whose_names_exports_write() -> None:
    files = {"megatron-lm": "megatron", "llama-factory": "llamafactory"}
    by_another = {"unsloth": "llamafactory", "transformers": "accelerate"}  # whose files start it
    for name, trainer in trainers().items():
        if name in by_another:
            targets = {target.name for target in of_kind("training") if {*trainer.stacks} & {*target.runs}}
            assert by_another[name] in targets
        elif trainer.exported:
            assert trainer.release == load_keys(files.get(name, name)).version, name
        assert trainer.source
        assert set(trainer.stacks) <= set(stacks()), name
        assert set(trainer.speeds) <= set(trainer.stacks), name
    assert trainers()["transformers"].release in load_keys("accelerate").source


def test_flavors_are_those_of_the_release() -> None:
    trainer, known = trainers()["torchtitan"], flavors()
    modules = {trainer.called[kind] for kind in trainer.sized}
    assert {flavor.name for flavor in trainer.flavors} == {name for name in known if name.partition("/")[0] in modules}
    for flavor in trainer.flavors:
        assert flavor.has(known[flavor.name])


def test_every_stack_of_auto_is_some_trainers_with_a_release() -> None:
    for choice in auto_choices():
        for stack in (*choice.stacks, *choice.otherwise, *choice.others):
            assert stack == "generic" or (trainer_of(stack) and release_of(stack)), stack


def test_megatron_core_means_the_trainer_that_builds_the_model() -> None:
    assert {meant("megatron-core", load_model(name)) for name in ("llama3-8b", "deepseek-v3")} == {"megatron-lm"}
    for name in ("glm-5", "minimax-m2.5", "nemotron3-nano-30b-a3b", "qwen3-next-80b-a3b"):
        assert meant("megatron-core", load_model(name)) == "megatron-bridge-26.04"
        assert auto_choice(parse_slice("h200:32"), load_model(name)).stacks == ("megatron-bridge-26.04",)
    assert meant("torchtitan", load_model("glm-5")) == "torchtitan"


def test_presets_of_the_table_are_presets() -> None:
    for trainer in trainers().values():
        assert set(trainer.presets) <= set(model_names())
