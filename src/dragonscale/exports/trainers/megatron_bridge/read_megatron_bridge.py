"""Recipes of Megatron-Bridge and commands that start one, read as plans.

A recipe is read without running it: its assignments to fields, the keywords of its configs; then overrides on a command
line. Its fields (a section of the `ConfigContainer`, and a name) are Megatron-LM's flags by other names, and are read
as those.

>>> fields_of({"--num-layers": 32, "--swiglu": True, "--grad-reduce-in-bf16": True})["model.gated_linear_unit"]
True
>>> flags_of({"model.virtual_pipeline_model_parallel_size": 5, "ddp.use_distributed_optimizer": True})
{'--num-virtual-stages-per-pipeline-rank': 5, '--use-distributed-optimizer': True}
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.imported import Given, Imported, Source
from dragonscale.exports.keys import ReadFlags, load_keys
from dragonscale.exports.model_names import hub_id, preset_named
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.megatron.read_megatron import read_run
from dragonscale.models.catalogue import is_preset

TERMS = load_terms("megatron-bridge")

CONFIGS = TERMS.tables["configs"]


class Code(str):
    """An expression of Python that is no plain value: a dtype, a function."""

    def __repr__(self) -> str:
        return str(self)


_SECTIONS: Mapping[str, list[str]] = TERMS.tables["sections"]
_OTHER = TERMS.tables["other_fields"]
FIELDS: Mapping[str, str] = {
    f"--{name}": f"{section}.{name.replace('-', '_')}" for section, names in _SECTIONS.items() for name in names
} | _OTHER
_FLAGS = {field: flag for flag, field in FIELDS.items()}
_NOT = TERMS.tables["opposite_fields"]
_DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}
PRECISION = TERMS.tables["precision"]


def fields_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say what flags say; flags that the container has no field for are left out."""
    found: dict[str, Any] = {}
    for flag, value in flags.items():
        if value is None:
            continue
        if flag in _NOT:
            found[_NOT[flag]] = not value
        elif flag == "--swiglu":
            found |= {"model.gated_linear_unit": True, "model.activation_func": Code("F.silu")}
        elif flag == "--squared-relu":
            found["model.activation_func"] = Code("squared_relu")
        elif flag in FIELDS:
            found[FIELDS[flag]] = _written(flag, value)
    return found


def _written(flag: str, value: Any) -> Any:
    if flag.endswith("-dtype") and value in _DTYPES and flag.startswith("--exp"):
        return Code(_DTYPES[value])
    if flag in ("--moe-layer-freq", "--window-size"):
        return Code(f"({str(value).strip('()')})")
    return value


def flags_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that say what fields say; a field that no flag stands for keeps its own name."""
    opposite = {field: flag for flag, field in _NOT.items()}
    found: dict[str, Any] = {}
    for field, value in fields.items():
        if field in opposite:
            found[opposite[field]] = not value
        elif field == "model.activation_func":
            name = str(value).rsplit(".", 1)[-1]
            found |= (
                {"--swiglu": True} if name == "silu" else {"--squared-relu": True} if name == "squared_relu" else {}
            )
        elif field == "model.cpu_offloading":  # without it the number of layers says nothing
            layers = fields.get("model.cpu_offloading_num_layers", 0)
            found |= {"--cpu-offloading-num-layers": layers} if value else {}
        elif field in ("model.gated_linear_unit", "model.cpu_offloading_num_layers"):
            continue
        elif field in ("optimizer.use_distributed_optimizer", "dist.use_megatron_fsdp"):
            found |= {f"--{field.split('.')[1].replace('_', '-')}": True} if value else {}
        elif field == "dataset.seq_length":
            found.setdefault("--seq-length", value)
        elif field == "model.num_query_groups":
            found |= {"--group-query-attention": True, "--num-query-groups": value}
        elif value is None or value is False:
            continue
        else:
            flag = _FLAGS.get(field, field)
            found[flag] = _read(flag, value)
    return found


def _read(flag: str, value: Any) -> Any:
    dtypes = {code: name for name, code in _DTYPES.items()}
    if str(value) in dtypes:
        return dtypes[str(value)]
    if flag in ("--moe-layer-freq", "--window-size"):
        inner = str(value).replace(" ", "").strip("()")
        return f"({inner})" if flag == "--moe-layer-freq" else inner
    return value


_PROVIDERS = {"MLAModelProvider": {"--multi-latent-attention": True}, "GPTModelProvider": {}}

COMMON = {"--bf16": True, "ddp.use_distributed_optimizer": True}


def recipe_fields(source: Source) -> tuple[dict[str, Any], str]:
    """The fields that a recipe sets, and the model that it names."""
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError):
        raise InputError(f"{source.shown} is not Python that can be read.") from None
    reader = _Recipe()
    for node in tree.body:  # constants of the file, which its functions use
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            reader.names[node.targets[0].id] = node.value
    for node in _body(tree):
        reader.take(node)
    return reader.fields, reader.model


def _body(tree: ast.Module) -> list[ast.stmt]:
    """The statements of the first function that makes a config; those of the file where there is none."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and re.search(r"\.model\b|ConfigContainer\(", ast.unparse(node)):
            return node.body
    return tree.body


class _Recipe:
    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.model = ""
        self.names: dict[str, ast.expr] = {}

    def take(self, node: ast.stmt) -> None:
        """One statement: a field that is set, a config that is made, or a name for later."""
        if isinstance(node, ast.If | ast.With | ast.For):
            for inner in node.body:
                self.take(inner)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            return
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name):
            self.names[target.id] = node.value
            self._call(node.value)
        elif isinstance(target, ast.Attribute):
            self._set(".".join(ast.unparse(target).split(".")[1:]), node.value)

    def _set(self, name: str, value: ast.expr) -> None:
        value = self._resolved(value)
        if name == "mixed_precision":
            self._precision(value)
        elif isinstance(value, ast.Call):
            self._call(value, name)
        elif "." in name:
            self.fields[name] = _value(value)

    def _resolved(self, value: ast.expr) -> ast.expr:
        """What a name stands for."""
        for _ in range(8):
            if not isinstance(value, ast.Name) or value.id not in self.names:
                break
            value = self.names[value.id]
        return value

    def _precision(self, value: ast.expr) -> None:
        """A recipe of mixed precision, by its name or as a call of it."""
        if isinstance(value, ast.Call):
            called = ast.unparse(value.func).rsplit(".", 1)[-1]
            if called == "MixedPrecisionConfig":
                said = {one.arg: str(_value(one.value)) for one in value.keywords}
                marks = {"nvfp4": "fp4" in said, "mxfp8": said.get("fp8_recipe") == "mxfp8", "fp8": "fp8" in said}
                marks |= {"fp16": said.get("fp16") == "True", "bf16": True}
                self.fields |= _precision_flags(next(dtype for dtype, holds in marks.items() if holds))
                if said.get("grad_reduce_in_fp32") == "False":
                    self.fields["mixed_precision.grad_reduce_in_fp32"] = False
                return
            named = value.args[0] if called == "get_mixed_precision_config" and value.args else None
            value = named if named is not None else ast.Constant(called)
        text = str(_value(value)).replace("-", "_")
        kinds = {name: dtype for dtype, name in PRECISION.items()}
        named = next((dtype for dtype in ("mxfp8", "fp8", "nvfp4") if dtype in text), "bf16")
        dtype = kinds.get(text) or named
        if text != "None":
            self.fields |= _precision_flags(dtype)

    def _call(self, value: ast.expr, name: str = "") -> None:
        """A config that is made: its keywords are its fields."""
        if not isinstance(value, ast.Call):
            return
        for inner in ast.walk(value):
            if isinstance(inner, ast.Call) and re.search(r"\.from_hf_\w+$", ast.unparse(inner.func)) and inner.args:
                self.model = str(_value(self._resolved(inner.args[0])))
                return
        called = ast.unparse(value.func).rsplit(".", 1)[-1]
        if not name and (called == "_pretrain_common" or called.endswith("_config")):
            self.fields |= COMMON  # what the library's recipes begin with
            self.model = library_model(called)
        if called in _PROVIDERS:
            self.fields |= _PROVIDERS[called]
            name = "model"
        for keyword in value.keywords:
            if keyword.arg is None:
                continue
            if called == "ConfigContainer":
                self._set(keyword.arg, keyword.value)
            elif name:
                self._set(f"{name}.{keyword.arg}", keyword.value)


def _precision_flags(dtype: str) -> dict[str, Any]:
    flags: dict[str, Any] = {"--fp16" if dtype == "fp16" else "--bf16": True}
    if dtype in ("fp8", "mxfp8"):
        flags |= {"--fp8-format": "hybrid", "--fp8-recipe": "mxfp8" if dtype == "mxfp8" else "tensorwise"}
    return flags | ({"--fp4-format": "e2m1"} if dtype == "nvfp4" else {})


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        return Code(ast.unparse(node))


def library_model(recipe: str) -> str:
    """The model of a recipe of the library, by the recipe's name; empty where none is like it.

    >>> (
    ...     library_model("llama31_405b_pretrain_config"),
    ...     library_model("qwen3_30b_a3b_pretrain_config"),
    ...     library_model("my_config"),
    ... )
    ('llama3.1-405b', 'qwen3-30b-a3b', '')
    """
    stem = re.split(r"_(?:pretrain|sft|peft|finetune|low_precision|\d+k_)", recipe)[0].removesuffix("_config")
    plain = stem.replace("_", "-")
    dotted = re.sub(r"^(llama|qwen)(\d)(\d)", r"\1\2.\3", plain)
    return next((name for name in (dotted, plain) if is_preset(name)), "")


def recognises(source: Source) -> bool:
    return _found(source) is not None


def _found(source: Source) -> tuple[Source | None, ShellCommand | None] | None:
    """The recipe and the command that starts it, one of which may not be there."""
    if "megatron.bridge" in source.text and "import" in source.text and not source.text.startswith("#!"):
        return source, None
    for command in source.commands:
        script = next((word for word in command.words if word.endswith(".py")), "")
        beside = source.beside(script) if script else None
        if beside is not None and "megatron.bridge" in beside.text:
            return beside, command
        if script.endswith("run_recipe.py") and any(word.startswith("--recipe") for word in command.words):
            return None, command
    return None


def read(source: Source, given: Given) -> Imported:
    """The plan of a recipe, of a script that starts one, or of a command with overrides."""
    found = _found(source)
    assert found is not None
    file, command = found
    fields, named = recipe_fields(file) if file is not None else ({}, "")
    if command is not None:
        overrides, library = _overrides(command)
        fields, named = ({} if file else COMMON) | fields | overrides, named or library
    table, kept = load_keys("megatron-bridge"), source if source.kept or file is None else file
    own = [name for name in fields if "." in name and name.split(".")[0] in (*CONFIGS, "model")]
    unknown = [name for name in own if table.known(name) is None]
    flags = flags_of({name: value for name, value in fields.items() if name not in unknown})
    values = {flag: _text(value) for flag, value in flags.items() if flag.startswith("--")}
    other = [name for name in flags if not name.startswith("--")]
    read, processes = ReadFlags(values, [], unknown), command.processes if command else 0
    model = _known(named, str(kept.kept.get("model", "")))
    imported = read_run(kept, given, read, processes, "megatron-bridge", table.version, model)
    return replace(imported, ignored=(*imported.ignored, *other))


def _known(named: str, kept: str) -> str:
    """The model of a repository: that of an export's header where it is of the same repository."""
    return kept if named and kept and hub_id(kept) == named else preset_named(named)


def _text(value: Any) -> Any:
    return value if isinstance(value, bool | list) else str(value)


def _overrides(command: ShellCommand) -> tuple[dict[str, Any], str]:
    """The fields and the library's recipe that a command names."""
    found: dict[str, Any] = {}
    recipe_name = ""
    for place, word in enumerate(command.words):
        name, equals, value = word.lstrip("+").partition("=")
        if name == "--recipe":
            recipe_name = value or next(iter(command.words[place + 1 :]), "")
        elif equals and "." in name and not name.startswith("-"):
            found[name] = {"true": True, "false": False, "null": None}.get(value.lower(), value)
    if not recipe_name:
        return found, ""
    model = library_model(recipe_name)
    if not model:
        raise InputError(f"The model of recipe {recipe_name!r} is not known; give --model.")
    return found, model
