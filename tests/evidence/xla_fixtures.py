"""Texts of compiled programs, kept with the numbers of their memory; `data/xla/README.md` says how they were made."""

import gzip
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from dragonscale.evidence.xla.compiled import Compiled, read_compiled

FOLDER = Path(__file__).parent / "data" / "xla"
GPU_MESH = {"fsdp": 2, "tensor": 4}
LAYERS, BATCH, MODEL, HIDDEN = 6, 64, 256, 512
TOKENS, HEAD = 256, 64
"""Sizes of the GPU programs."""
SHIPPED = {"v5p_full_mlp_windowed": files("dragonscale.commands.hlo").joinpath("example.hlo.gz")}
"""Kept as an example of the command."""
NAMES = sorted([*SHIPPED, *(path.name.removesuffix(".hlo.gz") for path in FOLDER.glob("*.hlo.gz"))])


@cache
def text_of(name: str) -> str:
    return gzip.decompress(SHIPPED.get(name, FOLDER / f"{name}.hlo.gz").read_bytes()).decode()


def about(name: str) -> dict[str, Any]:
    """The mesh and the memory numbers of a fixture (GPU fixtures share a mesh and have no memory numbers)."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"mesh": GPU_MESH, "memory": None}


@cache
def compiled(name: str) -> Compiled:
    known = about(name)
    return read_compiled(text_of(name), known["memory"], known["mesh"])
