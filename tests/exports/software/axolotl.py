"""axolotl's own schema (AxolotlInputConfig) on the configs that are exported for it."""

import json
import sys

sys.path.pop(0)  # this file has the package's name

import yaml
from axolotl.utils.schemas.config import AxolotlInputConfig
from axolotl.utils.schemas.fsdp import FSDPConfig

LIGER = (
    "liger_fused_linear_cross_entropy",
    "liger_rms_norm",
    "liger_rope",
    "liger_glu_activation",
    "cut_cross_entropy",
)
"""Names that plugins of its own add."""


def keys():
    """The fields of its config, and of the table for FSDP."""
    table = {}
    for name, field in AxolotlInputConfig.model_fields.items():
        default = field.default if isinstance(field.default, int | float | str) else None
        table[name] = {"default": default} if default is not None else {}
    table |= {f"fsdp_config.{name}": {} for name in FSDPConfig.model_fields} | {name: {} for name in LIGER}
    source = "axolotl 0.19.0 of the package index: AxolotlInputConfig, FSDPConfig and names of its Liger plugin"
    return {"software": "axolotl", "version": "0.19.0", "source": source, "keys": table}


def check(case):
    """None where the schema takes a case; otherwise what it says."""
    text = next(value for name, value in case["files"].items() if name.startswith("axolotl") and name.endswith(".yaml"))
    try:
        AxolotlInputConfig(**yaml.safe_load(text))
    except Exception as error:  # whatever it raises is its answer
        return f"{type(error).__name__}: {error}"[-600:]
    return None


if __name__ == "__main__":
    answer = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))
