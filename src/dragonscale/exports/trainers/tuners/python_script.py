"""Settings out of Python scripts that call TRL, PEFT, Unsloth or the Trainer: what their calls are given by name.

Nothing is run: values are constants, lists of them, or names that are set to one before.

>>> found = script_settings('''
... from trl import SFTConfig
... from peft import LoraConfig
... LENGTH = 2048
... args = SFTConfig(max_length=LENGTH, per_device_train_batch_size=2)
... peft = LoraConfig(r=16, target_modules="all-linear")
... ''')
>>> found["max_length"], found["lora_r"], found["use_peft"], found["trainer"]
(2048, 16, True, 'sft')
"""

import ast
from typing import Any

from dragonscale.exports.terms import load_terms

CALLS: dict[str, dict[str, Any]] = load_terms("python").tables["calls"]
NAMES: dict[str, dict[str, Any]] = load_terms("python").tables["names"]
FIRST: dict[str, Any] = load_terms("python").tables["first"]
PACKAGES = ("trl", "peft", "unsloth", "transformers")


def script_settings(text: str) -> dict[str, Any]:
    """What a script's calls say; nothing of a text that is no such script."""
    if not any(f"from {package}" in text for package in PACKAGES):
        return {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    known: dict[str, Any] = {}
    settings: dict[str, Any] = {"use_unsloth": True} if "from unsloth" in text else {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _value(node.value, known)
            if value is not None:
                known[node.targets[0].id] = value
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in CALLS:
            settings |= CALLS[name] | _arguments(call, name, known)
    return settings if "trainer" in settings or "use_peft" in settings else {}


def _arguments(call: ast.Call, name: str, known: dict[str, Any]) -> dict[str, Any]:
    """What a call is given, by the names of a run."""
    spelt, found = NAMES.get(name, {}), dict[str, Any]()
    if name in FIRST and call.args:
        found[FIRST[name]] = _value(call.args[0], known)
    for word in call.keywords:
        if word.arg and (value := _value(word.value, known)) is not None:
            found[spelt.get(word.arg, word.arg)] = value
    return {key: value for key, value in found.items() if value is not None}


def _value(node: ast.expr, known: dict[str, Any]) -> Any:
    """A constant, a list of them, `torch.bfloat16`, or a name that is set to one; None where it is anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        found = [_value(one, known) for one in node.elts]
        return found if all(value is not None for value in found) else None
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr in ("bfloat16", "float16", "float32") else None
    return None
