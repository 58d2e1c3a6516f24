"""Dynamo's own options: their names, and whether its workers' parsers take what is exported (`dynamo.toml` says what is
stubbed)."""

import argparse
import importlib.abc
import importlib.machinery
import json
import sys
import types
from pathlib import Path
from typing import Any

KEYS = Path(__file__).parents[3] / "src" / "dragonscale" / "exports" / "keys"
STUBBED = (
    "tensorrt_llm",
    "sglang",
    "vllm",
    "torch",
    "nixl",
    "prometheus_client",
    "kubernetes",
    "transformers",
    "zmq",
    "uvloop",
    "aiohttp",
    "redis",
    "dynamo._core",
    "dynamo.runtime",
    "dynamo.llm",
    "dynamo.prometheus_names",
    "dynamo.common.utils",
)


class Stub(types.ModuleType):
    """A module that has every name."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(name)

    def __call__(self, *_args: Any, **_named: Any) -> Any:
        return Stub("called")

    def __getitem__(self, _key: Any) -> Any:
        return Stub("item")

    def __iter__(self) -> Any:
        return iter(())


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, _path: Any, _target: Any = None) -> Any:
        if any(name == one or name.startswith(one + ".") for one in STUBBED):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return Stub(spec.name)

    def exec_module(self, _module: Any) -> None:
        pass


class Taken(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(message)


def parsers() -> dict[str, argparse.ArgumentParser]:
    """A parser of each component, with Dynamo's own options."""
    from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeArgGroup
    from dynamo.frontend.frontend_args import FrontendArgGroup
    from dynamo.sglang.backend_args import DynamoSGLangArgGroup
    from dynamo.trtllm.backend_args import DynamoTrtllmArgGroup
    from dynamo.vllm.backend_args import DynamoVllmArgGroup

    found = {}
    for name, groups in {
        "frontend": [FrontendArgGroup],
        "vllm": [DynamoRuntimeArgGroup, DynamoVllmArgGroup],
        "sglang": [DynamoRuntimeArgGroup, DynamoSGLangArgGroup],
        "trtllm": [DynamoRuntimeArgGroup, DynamoTrtllmArgGroup],
    }.items():
        found[name] = Taken(prog=f"dynamo.{name}", allow_abbrev=False)
        for group in groups:
            group().add_arguments(found[name])
    return found


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else None


def keys() -> dict[str, Any]:
    """The names of all components; a choice is one that any of them has."""
    table: dict[str, Any] = {}
    for parser in parsers().values():
        for action in parser._actions:
            names = [name for name in action.option_strings if name.startswith("--")]
            if not names or names[0] in ("--help", "--version"):
                continue
            kind = (
                "flag"
                if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction)
                else "list"
                if action.nargs in ("*", "+")
                else "str"
            )
            kind = {int: "int", float: "float"}.get(action.type, kind) if kind == "str" else kind  # pyright: ignore[reportArgumentType]
            own = table.setdefault(names[0], {"type": kind})
            off = [name for name in names[1:] if name.startswith("--no-")]
            also = [name for name in action.option_strings if name != names[0] and name not in off]
            choices = [
                *own.get("choices", []),
                *(one for one in map(_plain, action.choices or []) if one not in own.get("choices", [])),
            ]
            own |= {"also": sorted({*own.get("also", []), *also})} if also else {}
            own |= {"off": off[0]} if off else {}
            own |= {"choices": choices} if choices else {}
    from importlib.metadata import version

    found = version("ai-dynamo")
    source = f"argument groups of dynamo.frontend, dynamo.vllm, dynamo.sglang and dynamo.trtllm in ai-dynamo {found}"
    return {"software": "dynamo", "version": found, "source": source, "keys": table}


def with_engine(name: str, parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """A worker's parser with the options of its engine, as its own table has them."""
    path = KEYS / f"{name}.json"
    if name not in ("vllm", "sglang") or not path.exists():
        return parser
    for flag, key in json.loads(path.read_text(encoding="utf-8"))["keys"].items():
        names = [one for one in (flag, *key.get("also", []), key.get("off", "")) if one.startswith("-")]
        names = [one for one in names if one not in parser._option_string_actions]
        if names:
            nargs = {"flag": 0, "list": "+"}.get(key.get("type", "str"))
            kwargs = {"action": "store_true"} if nargs == 0 else {"nargs": nargs}
            parser.add_argument(*names, **kwargs)
    return parser


def verdict(words: list[str]) -> str | None:
    module = next((word for word in words if word.startswith("dynamo.")), "")
    if not module:
        return f"starts no component of Dynamo: {words}"
    name = module.removeprefix("dynamo.")
    try:
        with_engine(name, parsers()[name]).parse_args(words[words.index(module) + 1 :])
    except (ValueError, argparse.ArgumentError) as error:
        return str(error)
    return None


sys.path.pop(0)  # this file is called as the package is
sys.meta_path.insert(0, Finder())
if sys.argv[1] == "keys":
    print("\x02" + json.dumps(keys()))
else:
    print("\x02" + json.dumps([verdict(case["words"]) for case in json.load(sys.stdin)]))
