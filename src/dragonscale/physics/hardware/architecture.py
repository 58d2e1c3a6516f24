"""The architecture of a chip: which generation of kernels runs on it."""

from dragonscale.physics.hardware.chip import Chip


def architecture(chip: Chip) -> str:
    """The architecture of a chip: the one in its file, or else the one that its native formats tell.

    >>> from dragonscale.physics.hardware import load_chip
    >>> architecture(load_chip("gb200")), architecture(load_chip("v6e"))
    ('blackwell', 'tpu-v6e')
    """
    if chip.architecture:
        return chip.architecture
    if chip.kind == "gpu":
        # each generation of NVIDIA added a narrower tensor-core format
        for dtype, name in (("nvfp4", "blackwell"), ("fp8", "hopper"), ("bf16", "ampere")):
            if chip.format(dtype) == "native":
                return name
        return "volta"
    if chip.kind != "tpu":
        return ""
    return "tpu7x" if chip.format("fp8") == "native" else "tpu-v5e"
