"""verl's own configs, composed by Hydra with the settings of an exported command: a name that they lack is refused."""

import json
import os
import sys
import types
from importlib import metadata
from pathlib import Path

sys.path.append(sys.path.pop(0))  # this file has the package's name

import yaml
from hydra import compose, initialize_config_dir

FOLDER = Path(str(metadata.distribution("verl").locate_file("verl")))
MODULES = {
    "verl.trainer.main_ppo": ("trainer/config", "ppo_trainer"),
    "verl.experimental.one_step_off_policy.main_ppo": (
        "experimental/one_step_off_policy/config",
        "one_step_off_ppo_trainer",
    ),
    "verl.experimental.fully_async_policy.fully_async_main": (
        "experimental/fully_async_policy/config",
        "fully_async_ppo_trainer",
    ),
}
"""Where each program's `hydra.main` has its configs, and which it takes."""
WHOLE = ("trainer/config/_generated_ppo_trainer.yaml", "trainer/config/_generated_ppo_megatron_trainer.yaml")
TYPES = {bool: "bool", int: "int", float: "float", list: "list", dict: "json"}
# `pkg://verl.trainer.config` is looked for in the package, whose own import would load PyTorch and Ray
for name in ("verl", "verl.trainer"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(FOLDER.joinpath(*name.split(".")[1:]))]


def keys():
    """Every setting of its configs with all their defaults, and what the programs of two pools add."""
    table = {}
    for path in (*WHOLE, *(f"{folder}/{name}.yaml" for folder, name in [*MODULES.values()][:0:-1])):
        table |= {
            name: key for name, key in _settings(yaml.safe_load((FOLDER / path).read_text())) if name not in table
        }
    version = metadata.version("verl")
    source = f"verl {version} of the package index: its generated configs, and those of one-step-off and fully async"
    return {"software": "verl", "version": version, "source": source, "keys": table}


def _settings(tree, before=""):
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _settings(value, f"{before}{name}.")
            continue
        kind = TYPES.get(type(value), "str")
        plain = isinstance(value, bool | int | float | str) and "${" not in str(value)
        key = {"type": kind} if kind != "str" else {}
        yield f"{before}{name}", key | ({"default": value} if plain else {})


def check(case):
    """None where Hydra composes the command's config; otherwise what it says."""
    words = case["words"]
    folder, name = MODULES[words[words.index("-m") + 1]]
    given = [word for word in words[words.index("-m") + 2 :] if "=" in word]
    name = next((word.partition("=")[2] for word in given if word.startswith("--config-name=")), name)
    os.chdir(FOLDER.parent)  # where the repository is, as its `file://verl/trainer/config` has it
    try:
        with initialize_config_dir(str(FOLDER / folder), version_base=None):
            compose(name, [word for word in given if not word.startswith("--")])
    except Exception as error:  # whatever it raises is its answer
        return f"{type(error).__name__}: {error}"[:600]
    return None


if __name__ == "__main__":
    answer = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))
