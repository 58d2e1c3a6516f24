"""Megatron-Bridge's names for what Megatron-LM's flags say: a section of its `ConfigContainer`, and a field of it.

>>> fields_of({"--num-layers": 32, "--swiglu": True, "--grad-reduce-in-bf16": True})["model.gated_linear_unit"]
True
>>> flags_of({"model.virtual_pipeline_model_parallel_size": 5, "ddp.use_distributed_optimizer": True})
{'--num-virtual-stages-per-pipeline-rank': 5, '--use-distributed-optimizer': True}
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.exports.terms import load_terms

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
        elif field == "model.gated_linear_unit":
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
