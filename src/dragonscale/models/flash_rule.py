"""Which attention our own program hands to a flash kernel: one rule for the runtime, which asks it of arrays, and for
the planner.

cuDNN's kernel takes half precision, keys and values of one size up to 128, causal or within a sliding window. Soft
caps, sinks, chunks and larger heads are computed by XLA in blocks of scores.
"""

from dragonscale.models.program import Op, Section
from dragonscale.physics.kernels.score_blocks import BLOCK

LARGEST_HEAD = 128
ATTENTION_BLOCK = BLOCK


def takes_flash(key: int, value: int, soft_cap: bool, sinks: bool, chunk: bool) -> bool:
    """Whether a flash kernel takes heads of such keys and values.

    >>> takes_flash(128, 128, False, False, False), takes_flash(256, 256, False, False, False)
    (True, False)
    """
    return key == value and key <= LARGEST_HEAD and not (soft_cap or sinks or chunk)


def line_takes_flash(section: Section, op: Op) -> bool:
    """The same of a line of a program, whole sequences against themselves."""
    assert op.output is not None
    key, value = (section.dims.get(array.names[-1], 0) for array in (op.inputs[0], op.output))
    plain = op.function == "attend" and section.top is None and section.compress is None
    return plain and takes_flash(key, value, section.soft_cap, bool(op.weights), section.chunk is not None)
