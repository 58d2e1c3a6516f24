"""A recipe of Megatron-Bridge as the fields that it sets, read from its text: nothing of it is run."""

import ast
import re
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.source import Source
from dragonscale.exports.trainers.megatron_bridge.bridge_names import PRECISION, Code
from dragonscale.models.catalogue import is_preset

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
