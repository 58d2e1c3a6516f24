"""The Python file of a torchtitan run, for what its flags cannot say: sizes that no flavor has, number formats, the
kind of attention.

It has one function, `run`, which torchtitan calls (`--module torchtitan_run --config run`). Degrees, batch and schedule
stay flags, so that a command can be read and changed without it. `read_config` reads such a file back without running
it.
"""

import ast
import json
from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.terms import load_terms

TERMS = load_terms("torchtitan")


def converters(dtype: str, experts: bool, compiled: bool) -> list[tuple[str, str]]:
    """The converters of a number format: classes, and how they are configured. Router and head stay in bf16."""
    on = f"model_compile_enabled={compiled}"
    if dtype == "fp8":
        kept = '["lm_head", "router.gate"]' if experts else '["lm_head"]'
        found = [("Float8LinearConverter", f"filter_fqns={kept}, {on}")]
        return found + ([("Float8GroupedExpertsConverter", on)] if experts else [])
    if dtype == "mxfp8":
        found = [("MXFP8LinearConverter", f'fqns=["attention", "shared_experts", "feed_forward"], {on}')]
        return found + ([("MXFP8GroupedExpertsConverter", f"pad_multiple=128, {on}")] if experts else [])
    return []


def config_text(
    flavor: str,
    chosen: list[tuple[str, str]],
    attention: str,
    assets: str,
    sizes: Mapping[str, Any] | None = None,
    name: str = "",
) -> str:
    """The file for a flavor, or for sizes of its module that it lacks."""
    module, _, like = flavor.partition("/")
    # Names may be a user's: each is written as one string, in double quotes as the rest of the file.
    assets, name = (json.dumps(text, ensure_ascii=False) for text in (assets, name))
    made = ", ".join(f"{kind}.Config({how})" for kind, how in chosen)
    kinds = ", ".join(kind for kind, _ in chosen)
    imports = f"from torchtitan.components.quantization import {kinds}\n" if chosen else ""
    text = TERMS.texts["head"].format(module=module, quantization=imports)
    if sizes is not None:
        build = TERMS.texts["llama" if module == "llama3" else "qwen"]
        text = text.replace("from torchtitan.trainer", build.partition("\n\n")[0] + "\nfrom torchtitan.trainer")
        text += "\n" + build.partition("\n\n")[2].format(sizes=json.dumps(dict(sizes)).replace("true", "True"))
        text += TERMS.texts["sized"].format(like=like, name=name, converters=f"[{made}]" if made else "()")
        return text + TERMS.texts["run"].format(spec="sized_spec()", assets=assets)
    spec = f'model_registry("{like}"' + (f', attn_backend="{attention}"' if attention else "")
    spec += f", converters=[{made}])" if made else ")"
    return text + TERMS.texts["run"].format(spec=spec, assets=assets)


def read_config(text: str) -> dict[str, Any]:
    """What such a file says: `module`, `flavor`, `dtype`, `sizes`; only what is written out counts, nothing is run."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"The Python config of torchtitan cannot be read: {error}.") from None
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torchtitan.models."):
            module = node.module.split(".")[2]
            found |= {"module": module} if module != "common" else {}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "SIZES":
            found["sizes"] = ast.literal_eval(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "model_registry" and node.args:
            found["flavor"] = ast.literal_eval(node.args[0])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            for mark, dtype in (("MXFP8", "mxfp8"), ("Float8", "fp8"), ("NVFP4", "nvfp4")):
                found |= {"dtype": dtype} if node.value.id.startswith(mark) else {}
    return found
