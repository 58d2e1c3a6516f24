"""The types of an instruction's operands: from the computation it stands in, or from its own line where that names
them.

Compilers write operands short (`dot(%p, %q)`) or with their shapes (`dot(bf16[8,4]{1,0} %p, bf16[4,2]{1,0} %q)`). In a
module the shapes are those of the instructions named; an instruction on its own has only the second form.

>>> from dragonscale.evidence.xla.hlo_text import read_instruction
>>> operand_types(None, read_instruction("%d = f32[8] add(f32[8]{0} %p, f32[] /*index=1*/%q)"))
['f32[8]{0}', 'f32[]']
>>> operand_types(None, read_instruction("%d = f32[8] add(%p, %q)"))
['', '']
"""

import re

from dragonscale.evidence.xla.hlo_text import Computation, Instruction, split_outside
from dragonscale.evidence.xla.shapes import Shape, read_shapes

_COMMENT = re.compile(r"/\*[^*]*\*/")


def operand_types(computation: Computation | None, instruction: Instruction) -> list[str]:
    """The type of each operand in HLO's words, empty where nothing says it."""
    named = computation.named if computation else {}
    parts = [part.strip() for part in split_outside(_COMMENT.sub("", instruction.arguments)) if part.strip()]
    found: list[str] = []
    for part in parts:
        written, _, name = part.rpartition(" ")
        known = named.get(name.lstrip("%"))
        found.append(known.result if known else written.strip())
    return found


def operand_arrays(computation: Computation | None, instruction: Instruction) -> list[Shape]:
    """The arrays that an instruction reads, in order; those whose type nothing says are left out."""
    return [shape for each in operand_types(computation, instruction) for shape in read_shapes(each)]
