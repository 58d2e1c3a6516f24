"""Formats that weights are stored in but never multiplied in, as files for cards at home have them: blocks of GGUF,
groups of MLX and bitsandbytes, EXL2 and EXL3 at any number of bits.

>>> stored_bytes("q4_0"), stored_bytes("q4_k_m"), stored_bytes("exl3_4.5")
(0.5625, 0.5625, 0.5625)
>>> [read_format(text) for text in ("Q4_K_M", "UD-Q4_K_XL", "q4km", "AWQ", "exl2 4.65bpw", "mlx-4bit", "bf16")]
['q4_k_m', 'q4_k_m', 'q4_k_m', 'int4', 'exl2_4.65', 'mlx4', 'bf16']
"""

import re

from dragonscale.tables import beside

_FILE = beside(__file__, "stored_formats.toml")
BLOCKS: dict[str, tuple[int, float]] = {name: tuple(size) for name, size in _FILE["blocks"].items()}
"""Elements and bytes of a block of each type of tensor in GGUF files."""
_MIXTURES: dict[str, dict] = beside(__file__, "gguf_mixtures.toml")["files"]
GGUF_FILES: dict[str, str] = {name: row["type"] for name, row in _MIXTURES.items()}
"""The type of most tensors of each type of file (`q4_k_m` is mostly `q4_k`)."""
GROUPS: dict[str, tuple[int, float]] = {name: tuple(size) for name, size in _FILE["groups"].items()}

STORED = (*GGUF_FILES, *GROUPS)
"""The names of formats of files, but for EXL2's and EXL3's, which have any number of bits."""
_EXL = re.compile(r"(exl[23])_?(\d(?:\.\d{1,3})?)(?:bpw|bits?)?")
MAX_BITS = 8.0


def stored_bytes(name: str) -> float | None:
    """Bytes of a weight in most tensors of a stored format, scales included; None for other dtypes."""
    size = BLOCKS.get(GGUF_FILES.get(name, "")) or GROUPS.get(name)
    if size is not None:
        return size[1] / size[0]
    bits = exl_bits(name)
    return None if bits is None else bits / 8


def exl_bits(name: str) -> float | None:
    """Bits of a weight of EXL2 or EXL3 (`exl3_4.5`); None for other formats."""
    match = _EXL.fullmatch(name)
    if match is None or not 1 <= float(match[2]) <= MAX_BITS:
        return None
    return float(match[2])


def read_format(text: str) -> str:
    """The name of a format as people write it; what is no spelling of a stored one is returned in small letters."""
    name = re.sub(r"[-\s]+", "_", text.strip().lower())
    name = re.sub(r"^(ud|i1|gguf)_(?=.)", "", name)
    exl = _EXL.fullmatch(name)
    if exl:
        return f"{exl[1]}_{float(exl[2]):g}"
    # Unsloth's and others' larger variants keep some tensors wider; they are read as the file that they start from
    base = re.sub(r"_x?l$", "_m", name)
    joined = {known.replace("_", ""): known for known in STORED}
    for candidate in (name, _FILE["spellings"].get(name, ""), joined.get(name, ""), base, base.removesuffix("_m")):
        if candidate in STORED or candidate == _FILE["spellings"].get(name):
            return candidate
    return text.strip().lower()
