"""TensorRT-LLM's own argument classes: its names, and whether it takes what is exported (`trtllm.toml` says what is stubbed)."""

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
STUBBED = ("tensorrt_llm", "torch", "transformers", "tensorrt", "ray", "mpi4py", "prometheus_client", "etcd3", "uvicorn")


NUMBERS: dict[str, Any] = {"mpi_rank": 0, "device_count": 8, "get_device_capability": (9, 0), "is_available": True}
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
        elif name == "BaseModel" or name[:1].isupper() or ".bindings" in self.__name__:
            made = Anything(name, (), {"__members__": {}, "__getattr__": _nothing, "__cpp__": ".bindings" in self.__name__})
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
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__package__ = "tensorrt_llm.llmapi"
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
