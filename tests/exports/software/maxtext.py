"""MaxText's own config loader and pydantic class, on what is exported for it.

JAX and the libraries around it are stood in for: a config is checked by arithmetic alone. The devices that MaxText
would ask JAX for are those of the topology that the file names for an ahead-of-time compile, looked up in MaxText's own
table of topologies; where it names none (GPUs) they are the product of the mesh.
"""

import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
import tempfile
import types as modules
import warnings
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from unittest.mock import MagicMock

sys.path.pop(0)  # this file has the name of what it imports
STOOD_IN_FOR = (
    "jax",
    "flax",
    "orbax",
    "etils",
    "pathwaysutils",
    "tensorboardX",
    "absl",
    "psutil",
    "numpy",
    "google",
    "transformers",
)


class Anything(modules.ModuleType):
    """A module that has every name."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, *_: Any) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name.split(".")[0] in STOOD_IN_FOR else None

    def create_module(self, spec: Any) -> modules.ModuleType:
        return Anything(spec.name)

    def exec_module(self, module: modules.ModuleType) -> None:
        pass


def of_type(annotation: Any) -> tuple[str, list[Any]]:
    """What kind of value a field takes, and which ones."""
    kinds = [
        one
        for one in (get_args(annotation) if get_origin(annotation) is not Literal else [annotation])
        if one is not type(None)
    ]
    if get_origin(annotation) in (list, tuple, dict):
        return "list" if get_origin(annotation) is not dict else "json", []
    one = kinds[0] if kinds else annotation
    if get_origin(one) is Literal:
        return "str", list(get_args(one))
    if get_origin(one) in (list, tuple, dict):
        return "list", []
    if isinstance(one, type) and issubclass(one, Enum):
        return "str", [member.value for member in one]
    named = {bool: "bool", int: "int", float: "float"}
    return named.get(one, "str") if isinstance(one, type) else "str", []


def keys(config: Any, version: str) -> dict[str, Any]:
    found = {}
    for name, field in config.model_fields.items():
        kind, choices = of_type(field.annotation)
        key: dict[str, Any] = {"type": kind}
        if choices and name != "model_name":
            key["choices"] = choices
        default = field.default.value if isinstance(field.default, Enum) else field.default
        if isinstance(default, (bool, int, float, str)):
            key["default"] = default
        found[name] = key
    found["base_config"] = {"type": "str"}  # taken by the loader before the config class sees it
    from maxtext.configs.types import ModelName
    from maxtext.utils.accelerator_to_spec_map import UserFacingNameToSystemCharacteristics as topologies

    found["compile_topology"]["choices"] = list(topologies)
    found["model_name"] = {"type": "str", "choices": list(get_args(ModelName))}
    return {
        "software": "MaxText",
        "version": version,
        "source": f"maxtext {version}, maxtext/configs/types.py",
        "keys": found,
    }


def devices_of(text: str, table: dict[str, Any]) -> tuple[int, int]:
    """Devices of a slice, and slices: of the topology that the file names, or of the mesh."""
    from maxtext.utils import accelerator_to_spec_map

    named = re.search(r"compile_topology=(\S+) compile_topology_num_slices=(\d+)", text)
    if named:
        return accelerator_to_spec_map.get_system_characteristics(named[1]).devices_per_slice, int(named[2])
    sizes = dict.fromkeys(("ici", "dcn"), 1)
    for name, value in table.items():
        if name[:4] in ("ici_", "dcn_"):
            sizes[name[:3]] *= value
    return sizes["ici"], sizes["dcn"]


def check(case: dict[str, Any], pyconfig: Any) -> str | None:
    import yaml

    with tempfile.TemporaryDirectory() as place:
        for name, text in case["files"].items():
            Path(place, name).write_text(text, encoding="utf-8")
        os.environ.pop("XLA_FLAGS", None)
        words = case["words"]
        at = next(index for index, word in enumerate(words) if word.endswith(".yml"))
        text = case["files"][words[at]]
        table = yaml.safe_load(text)
        each, slices = devices_of(text, table)
        try:
            made = pyconfig._initialize_pydantic(
                ["train", str(Path(place, words[at])), *words[at + 1 :]],
                internal_compile=True,
                internal_compile_num_devices=each * slices,
                num_slices=slices,
            )
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:600]
        for way, size in (("ici", each), ("dcn", slices)):
            product = 1
            for one in getattr(made, f"{way}_parallelism"):
                product *= one
            if product != size:
                return f"the {way} mesh has {product} devices of {size}"
        for name, value in table.items():
            own = getattr(made, name, value)
            own = own.value if isinstance(own, Enum) else own
            if own != value and not (name == "remat_policy" and own is None and value == "none"):
                return f"{name} is {own} and not {value}"  # a model's config wins over the file
        said = re.search(r"Global batch: (\d+) sequences", text)
        if said is None or int(said[1]) != made.global_batch_size_to_train_on:
            return (
                f"MaxText would train on {made.global_batch_size_to_train_on} sequences a step, not {said and said[1]}"
            )
    return None


def main() -> None:
    sys.meta_path.insert(0, Finder())
    warnings.simplefilter("ignore")
    from importlib.metadata import version

    from maxtext.configs import pyconfig, types
    from maxtext.utils import max_logging, max_utils

    max_utils.maybe_initialize_jax_distributed_system = lambda *_: None
    for name in ("log", "warning", "error", "info"):
        setattr(max_logging, name, lambda *_: None)
    if sys.argv[1] == "keys":
        answer: Any = keys(types.MaxTextConfig, version("maxtext"))
    else:
        answer = [check(case, pyconfig) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))


if __name__ == "__main__":
    main()
