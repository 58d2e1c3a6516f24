"""TensorRT-LLM's own argument classes: its names, and whether it takes what is exported (`trtllm.toml` says what is
stubbed)."""

import ast
import enum
import importlib.util
import json
import os
import sys
import tempfile
import types
import typing
from pathlib import Path
from typing import Any

SOURCE = Path(os.environ["TRTLLM_SOURCE"])
REAL = ("tensorrt_llm.llmapi.llm_args",)
STUBBED = (
    "tensorrt_llm",
    "torch",
    "transformers",
    "tensorrt",
    "ray",
    "mpi4py",
    "prometheus_client",
    "etcd3",
    "uvicorn",
)


NUMBERS: dict[str, Any] = {
    "mpi_rank": 0,
    "device_count": 8,
    "get_device_capability": (9, 0),
    "is_available": True,
    "get_device_properties": types.SimpleNamespace(major=9, minor=0),
}
"""What its validators ask of the machine: a node of eight Hopper GPUs."""


def _nothing(_self: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *_a, **_k: {}


class Anything(type):
    """A class with every class method: it gives an object of the class, or 1 for C++, whose defaults are numbers."""

    def __call__(cls, *_args: Any, **_named: Any) -> Any:
        return cls.__new__(cls)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_a, **_k: 1 if cls.__cpp__ else cls()


class Stub(types.ModuleType):
    """A module that has every name: classes where it begins with a capital, functions that give None otherwise."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any
        if name == "logger":
            made = Stub("logger")
        elif name == "QuantAlgo":
            made = enum.Enum("QuantAlgo", ["FP8", "NVFP4", "INT8"])
        elif name == "StrictBaseModel":
            import pydantic

            made = type(name, (pydantic.BaseModel,), {"model_config": {"extra": "forbid"}})
        elif name[:1].isupper() or ".bindings" in self.__name__:
            made = Anything(
                name, (), {"__members__": {}, "__getattr__": _nothing, "__cpp__": ".bindings" in self.__name__}
            )
        elif self.__name__ == "logger":
            made = lambda *_a, **_k: None  # noqa: E731
        elif name == "generate_api_docs_as_docstring":
            made = lambda *_a, **_k: ""  # noqa: E731
        elif name in NUMBERS:
            made = lambda *_a, **_k: NUMBERS[name]  # noqa: E731
        else:
            made = Stub(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made

    def __call__(self, *_args: Any, **_named: Any) -> Any:
        return None


class Finder:
    """Stubs every module of `STUBBED` but the files that are read."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        if name in REAL or name.split(".")[0] not in STUBBED:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)  # pyright: ignore[reportArgumentType]

    def create_module(self, spec: Any) -> types.ModuleType:
        return Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


def load() -> types.ModuleType:
    """`llm_args.py` alone."""
    import pydantic

    # Classes that mirror C++ ones are checked against them when they are declared; there are none here.
    sys.meta_path.insert(0, Finder())  # pyright: ignore[reportArgumentType]
    pydantic.BaseModel.model_config = {"arbitrary_types_allowed": True}
    path = SOURCE / "tensorrt_llm" / "llmapi" / "llm_args.py"
    spec = importlib.util.spec_from_file_location("tensorrt_llm.llmapi.llm_args", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__package__ = "tensorrt_llm.llmapi"
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PLAIN = {int: "int", float: "float", str: "str", bool: "bool"}


def names(module: types.ModuleType) -> dict[str, dict[str, Any]]:
    """Every key of a YAML of arguments, with dots between tables."""
    found: dict[str, dict[str, Any]] = {}
    for name, field in module.TorchLlmArgs.model_fields.items():
        found |= _named(module, field.alias or name, field.annotation, field)
    classes = [
        one for one in vars(module).values() if isinstance(one, type) and issubclass(one, module.DecodingBaseConfig)
    ]
    for one in classes:
        for name, field in one.model_fields.items():
            found |= _named(module, f"speculative_config.{name}", field.annotation, field)
    found["speculative_config.decoding_type"] = {"type": "str", "choices": _decoding_types()}
    for name, field in module.MoeLoadBalancerConfig.model_fields.items():
        found |= _named(module, f"moe_config.load_balancer.{name}", field.annotation, field)
    return found


def _named(module: types.ModuleType, name: str, annotation: Any, field: Any) -> dict[str, dict[str, Any]]:
    parts = [one for one in typing.get_args(annotation) or (annotation,) if one is not type(None)]
    inner = [one for one in parts if isinstance(one, type) and issubclass(one, module.StrictBaseModel)]
    if inner and not name.startswith("speculative_config."):
        found: dict[str, dict[str, Any]] = {name: {"type": "json"}}
        for one in inner:
            for key, own in one.model_fields.items():
                found |= _named(module, f"{name}.{key}", own.annotation, own)
        return found
    key: dict[str, Any] = {"type": "str"}
    if typing.get_origin(annotation) is typing.Literal:
        key["choices"] = list(typing.get_args(annotation))
    for one in parts:
        if typing.get_origin(one) is typing.Literal:
            key["choices"] = list(typing.get_args(one))
        elif isinstance(one, type) and issubclass(one, enum.Enum):
            key["choices"] = [str(member.value) for member in one]
        elif one in PLAIN:
            key["type"] = PLAIN[one]
        elif typing.get_origin(one) in (list, set):
            key["type"] = "list"
        elif typing.get_origin(one) is dict or one is dict:
            key["type"] = "json"
    if isinstance(field.default, int | float | str | bool) and not isinstance(field.default, enum.Enum):
        key["default"] = field.default
    return {name: key}


def _decoding_types() -> list[str]:
    """The words that `DecodingBaseConfig.from_dict` tells its classes apart by."""
    tree = ast.parse((SOURCE / "tensorrt_llm/llmapi/llm_args.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "config_classes":
            keys = [ast.literal_eval(key) for key in node.value.keys if key is not None]  # pyright: ignore
            if "MTP" in keys:
                return keys
    return []


def flags() -> dict[str, dict[str, Any]]:
    """The options of `trtllm-serve` and `trtllm-serve disaggregated`, from their decorators."""
    tree = ast.parse((SOURCE / "tensorrt_llm/commands/serve.py").read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("serve", "disaggregated"):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "option":
                    found |= _option(call)
    found["--config"]["also"] = ["--extra_llm_api_options"]
    return found


def _option(call: ast.Call) -> dict[str, dict[str, Any]]:
    spelt = [str(ast.literal_eval(one)) for one in call.args]
    dashed = sorted((one for one in spelt if one.startswith("-")), key=lambda one: not one.startswith("--"))
    said = {one.arg: one.value for one in call.keywords}
    kind = ast.unparse(said["type"]) if "type" in said else "str"
    key: dict[str, Any] = {"type": "flag" if "is_flag" in said else kind if kind in ("int", "float") else "str"}
    if dashed[1:]:
        key["also"] = dashed[1:]
    return {dashed[0]: key}


def servers() -> dict[str, dict[str, Any]]:
    """The keys of the file of `trtllm-serve disaggregated`: the parameters of the function that reads it."""
    tree = ast.parse((SOURCE / "tensorrt_llm/llmapi/disagg_utils.py").read_text(encoding="utf-8"))
    own = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = {f"disaggregated.{one.arg}": {"type": "str"} for one in own["extract_disagg_cfg"].args.args}
    for pool in ("context_servers", "generation_servers"):
        for one in own["extract_ctx_gen_cfgs"].args.args[1:]:
            found[f"disaggregated.{pool}.{one.arg}"] = {"type": "str"}
    return found


def check(module: types.ModuleType, case: dict[str, Any]) -> str | None:
    """What the real classes say of a command and its files."""
    import click

    words = case["words"]
    command = click.Command("serve", params=[click.Argument(["model"])])
    if words[:2] == ["trtllm-serve", "disaggregated"]:
        words, command = words[1:], click.Command("disaggregated")
    for name, key in flags().items():
        plain = name.lstrip("-").replace("-", "_")
        kind = {"int": click.INT, "float": click.FLOAT}.get(key["type"], click.STRING)
        spelt = [plain, name, *key.get("also", [])]
        command.params.append(
            click.Option(spelt, type=None if key["type"] == "flag" else kind, is_flag=key["type"] == "flag")
        )
    try:
        given = command.make_context("trtllm-serve", list(words[1:])).params
        if "model" in given:
            _check_args(module, given, case["files"])
    except Exception as error:  # whatever its validators raise is the verdict
        return str(error)
    return None


def _check_args(module: types.ModuleType, given: dict[str, Any], files: dict[str, str]) -> None:
    names_of_args = set(module.TorchLlmArgs.model_fields)
    args = {key: value for key, value in given.items() if value is not None and key in names_of_args}
    if given.get("config"):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
            file.write(files[given["config"]])
        args = module.update_llm_args_with_extra_options(args, file.name)
        Path(file.name).unlink()
    made = module.TorchLlmArgs(**args)
    sliced, dealt = made.moe_tensor_parallel_size or 0, made.moe_expert_parallel_size or 0
    if sliced > 0 and dealt > 0 and sliced * dealt != made.tensor_parallel_size:  # what `mapping.py` raises
        raise ValueError(f"moe_tp_size {sliced} * moe_ep_size {dealt} is not tp_size {made.tensor_parallel_size}")


def main() -> None:
    module = load()
    out = sys.stdout
    if sys.argv[1] == "keys":
        version = (SOURCE / "tensorrt_llm/version.py").read_text(encoding="utf-8").rpartition('"')[0].rpartition('"')[2]
        source = (
            "github.com/NVIDIA/TensorRT-LLM, tensorrt_llm/llmapi/llm_args.py, disagg_utils.py and commands/serve.py"
        )
        table = {**flags(), **names(module), **servers()}
        out.write(
            "\x02" + json.dumps({"software": "TensorRT-LLM", "version": version, "source": source, "keys": table})
        )
        return
    out.write("\x02" + json.dumps([check(module, case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
