"""The sizes of a matmul: batch · [m, k] × [k, n], however it is written.

>>> from dragonscale.evidence.xla.hlo_text import read_instruction
>>> text = "%d = f32[16,128] dot(f32[256,16] %x, f32[128,256] %y), lhs_contracting_dims={0}, rhs_contracting_dims={1}"
>>> matmul_sizes(None, None, read_instruction(text))
(MatmulSizes(batch=1, m=16, n=128, k=256, dtype='f32', out_dtype='f32'),)

A fusion's line alone does not say how its operands are multiplied, but the shapes do where only one way fits.

>>> matvec = read_instruction("%fusion.1 = bf16[4096] fusion(bf16[4096,8192] %w, bf16[8192] %x), kind=kLoop")
>>> suspected_matmul(matvec, ["bf16[4096,8192]", "bf16[8192]"])
MatmulSizes(batch=1, m=4096, n=1, k=8192, dtype='bf16', out_dtype='bf16')
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, operand_arrays
from dragonscale.evidence.xla.matmul_flops import matmul_flops
from dragonscale.evidence.xla.shapes import Shape, read_shapes

_DEEPEST = 8


class MatmulSizes(msgspec.Struct, frozen=True):
    """`batch` matmuls of [m, k] and [k, n]; the types are those of the first operand and of the result."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str
    out_dtype: str

    @property
    def flops(self) -> float:
        """A multiplication and an addition for each term."""
        return 2.0 * self.batch * self.m * self.n * self.k


def matmul_sizes(module: Module | None, where: Computation | None, instruction: Instruction) -> tuple[MatmulSizes, ...]:
    """The matmuls of an instruction: itself, or those in its fusion."""
    return tuple(_found(module, where, instruction, 0))


def _found(
    module: Module | None, where: Computation | None, instruction: Instruction, depth: int
) -> Iterator[MatmulSizes]:
    if instruction.opcode in ("dot", "convolution", "custom-call"):
        sizes = _of_one(where, instruction)
        if sizes:
            yield sizes
    elif (
        module is not None
        and instruction.opcode in ("fusion", "fusion-start", "async-start", "call-start")
        and depth < _DEEPEST
    ):
        for _, name in instruction.callees:
            inside = module.computations[name]
            for each in inside.instructions:
                yield from _found(module, inside, each, depth + 1)


def _of_one(where: Computation | None, instruction: Instruction) -> MatmulSizes | None:
    operands = operand_arrays(where, instruction)
    flops = matmul_flops(where, instruction)
    if not flops or not operands or not instruction.shapes:
        return None
    lhs, out = operands[0], instruction.shapes[0]
    if instruction.opcode == "convolution":
        batch, m, n = _convolved(out, instruction.attribute("dim_labels").partition("->")[2])
    else:
        batch, m, n = _multiplied(lhs, out, instruction)
    k = round(flops / (2 * batch * m * n)) if batch * m * n else 0
    sizes = MatmulSizes(batch, m, n, k, lhs.dtype, out.dtype)
    return sizes if sizes.flops == flops else None  # a convolution with borders, or attention: more than one matmul


def _multiplied(lhs: Shape, out: Shape, instruction: Instruction) -> tuple[int, int, int]:
    """Batch, rows and columns of a dot (or of a library's, whose configuration has the same numbers)."""
    batched = [int(dim) for dim in re.findall(r"\d+", instruction.attribute("lhs_batch_dims"))]
    summed = [int(dim) for dim in re.findall(r"\d+", instruction.attribute("lhs_contracting_dims"))]
    config = instruction.config.get("gemm_backend_config")
    if isinstance(config, dict) and isinstance(config.get("dot_dimension_numbers"), dict):
        numbers = config["dot_dimension_numbers"]
        batched, summed = (
            [int(dim) for dim in numbers.get(f"lhs_{name}_dimensions", ())] for name in ("batch", "contracting")
        )
    batch = math.prod(lhs.dims[dim] for dim in batched if dim < len(lhs.dims))
    m = math.prod(size for dim, size in enumerate(lhs.dims) if dim not in (*batched, *summed))
    return batch, m, math.prod(out.dims) // (batch * m) if batch * m else 0


def _convolved(out: Shape, labels: str) -> tuple[int, int, int]:
    """A convolution's batch dims are its spatial ones (see `convolution`), rows its batch, columns its features."""
    sizes = dict(zip(labels, out.dims, strict=False))
    spatial = math.prod(size for label, size in sizes.items() if label not in "bf")
    return spatial, sizes.get("b", 1), sizes.get("f", 1)


def suspected_matmul(instruction: Instruction, types: Sequence[str]) -> MatmulSizes | None:
    """The matmul of the two largest operands that gives the result's dims, or None where none or several would.

    Dims are matched by size: one that both operands have and the result lacks is summed over, one that all three have
    is a batch dim.
    """
    arrays = sorted((shape for text in types for shape in read_shapes(text)), key=lambda one: -math.prod(one.dims))
    results = instruction.shapes[:1]
    if len(arrays) < 2 or not results:
        return None
    left, right, out = (_sized(shape) for shape in (arrays[0], arrays[1], results[0]))
    found = {sizes for batch in _parts_of(left & right & out) if (sizes := _matched(left, right, out, batch))}
    return MatmulSizes(*found.pop(), arrays[0].dtype, results[0].dtype) if len(found) == 1 else None


def _sized(shape: Shape) -> Counter[int]:
    return Counter(size for size in shape.dims if size > 1)


def _parts_of(sizes: Counter[int]) -> Iterator[Counter[int]]:
    """Every choice of dims of these sizes, none of them too."""
    names = sorted(sizes)[:_DEEPEST]
    for counts in itertools.product(*(range(min(sizes[name], _DEEPEST) + 1) for name in names)):
        yield Counter({name: count for name, count in zip(names, counts, strict=True) if count})


def _matched(
    left: Counter[int], right: Counter[int], out: Counter[int], batch: Counter[int]
) -> tuple[int, int, int, int] | None:
    """Batch, rows, columns and what is summed over, where the result has just the dims that are left."""
    summed = (left - batch) & (right - batch) - (out - batch)
    rows, columns = left - batch - summed, right - batch - summed
    if not summed or out != batch + rows + columns:
        return None
    b, m, n, k = (math.prod(each.elements()) for each in (batch, rows, columns, summed))
    return b, m, n, k
