"""Einsum lines: `A[I_X, J] @ B[J_X, K] -> C[I, K]`.

Operands are joined by `@`, `·`, `*` or commas, and an arrow gives the wanted output. Dims with the same name are the
same index; an index that the output lacks is summed. Without an arrow the output is what matrix multiplication gives:
the last dim of the left operand is summed, every other index stays. Dims known only by size are matched by position,
as in `bf16[B, 8192] @ bf16[8192, 28672]`.

>>> line = parse_einsum("A[I_X, J] @ B[J_X, K] -> C[I, K]")
>>> line.contracted, str(line)
(('J',), 'A[I_X, J] · B[J_X, K] -> C[I, K]')
>>> matmul = parse_einsum("bf16[B,8192] @ bf16[8192,28672]")
>>> matmul.indices, matmul.sizes
(('B', 'I', 'J'), {'I': 8192, 'J': 28672})
"""

from dataclasses import dataclass, replace

from dragonscale.errors import InputError, shorten
from dragonscale.physics.notation.array import MAX_LENGTH, Array, Dim, parse_array, split_top
from dragonscale.physics.numbers import Number, product

MAX_INDICES = 26


@dataclass(frozen=True)
class Einsum:
    """Arrays multiplied and summed over every index that the output lacks."""

    operands: tuple[Array, ...]
    output: Array

    def __str__(self) -> str:
        return f"{' · '.join(map(str, self.operands))} -> {self.output}"

    @property
    def indices(self) -> tuple[str, ...]:
        """Every index, in order of first appearance; an index picked by another (`e:x`) is not one to run over."""
        seen: dict[str, None] = {}
        for array in (*self.operands, self.output):
            seen.update(dict.fromkeys(dim.name for dim in array.dims if not dim.select))
        return tuple(seen)

    @property
    def contracted(self) -> tuple[str, ...]:
        """The indices that are summed over."""
        return tuple(index for index in self.indices if index not in self.output.names)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes written in the line, by index."""
        arrays = (*self.operands, self.output)
        return {dim.name: dim.size for array in arrays for dim in array.dims if dim.size is not None}

    def flops(self, sizes: dict[str, Number]) -> Number:
        """Multiply-adds counted as two: twice the product of all index sizes, or once if nothing is summed."""
        return (2 if self.contracted else len(self.operands) - 1) * product(sizes[index] for index in self.indices)

    @property
    def axes(self) -> tuple[str, ...]:
        """Every mesh axis that the line names, in order of first appearance."""
        arrays = (*self.operands, self.output)
        return tuple(dict.fromkeys(axis for array in arrays for axis in (*array.axes, *array.partial)))


def parse_einsum(text: str) -> Einsum:
    """Read an einsum line of one or more operands. See the module's examples."""
    if len(text) > MAX_LENGTH:
        raise InputError(f"The expression {shorten(text)} is {len(text)} characters long; {MAX_LENGTH} are allowed.")
    left, arrow, right = text.replace("→", "->").partition("->")
    parts = list(split_top(left.replace(" . ", " @ "), "@·*×,"))
    if not left.strip() or not all(part.strip() for part in parts):
        ask = "write arrays joined by '@', such as 'A[I_X, J] @ B[J, K] -> C[I_X, K]'."
        raise InputError(f"{shorten(text)} is not an einsum; {ask}")
    operands = [parse_array(part) for part in parts]
    if "->" in right:
        raise InputError(f"{shorten(text)} has two arrows; one output is allowed.")
    output = parse_array(right) if arrow else None
    operands, output = _name_sizes(operands, output, text)
    if output and len(operands) == 1 and not output.dtype:
        output = replace(output, dtype=operands[0].dtype)  # a reshard moves what is there
    line = Einsum(tuple(operands), output or _matmul_output(operands, text))
    _check(line, text)
    return line


def parse_chain(text: str) -> list[Einsum]:
    """Read a chain of matrix multiplications as one einsum after the other.

    In `In[B, D] · W_in[D, F] · W_out[F, D] -> Out[B, D]` the D that goes in is summed by the first matmul and the D
    that comes out belongs to the second, which a single einsum could not say. The intermediates are called T1, T2, …

    >>> for line in parse_chain("In[B, D] · W_in[D, F] · W_out[F, D] -> Out[B, D]"):
    ...     print(line)
    In[B, D] · W_in[D, F] -> T1[B, F]
    T1[B, F] · W_out[F, D] -> Out[B, D]
    """
    whole = parse_einsum(text)
    if len(whole.operands) <= 2:
        return [whole]
    lines: list[Einsum] = []
    left = whole.operands[0]
    for number, right in enumerate(whole.operands[1:], 1):
        last = number == len(whole.operands) - 1
        natural = _matmul_output([left, right], text)
        output = whole.output if last else replace(natural, name=f"T{number}").with_layout({})
        if last and set(natural.names) != set(output.names):
            kept, wanted = ", ".join(natural.names), ", ".join(output.names)
            raise InputError(f"In {shorten(text)} the chain leaves the dims {kept}, but the output has {wanted}.")
        lines.append(Einsum((left, right), output))
        left = output
    return lines


def _name_sizes(operands: list[Array], output: Array | None, text: str) -> tuple[list[Array], Array | None]:
    """Give dims known only by size a name: neighbours in a matmul chain share theirs, the rest get fresh ones."""
    used = {dim.name for array in [*operands, *([output] if output else [])] for dim in array.dims}
    fresh = (letter for letter in "IJKLMNOPQRSTUVWXYZ" if letter not in used)
    named: list[Array] = []
    for position, array in enumerate(operands):
        dims = list(array.dims)
        for place, dim in enumerate(dims):
            if dim.name:
                continue
            before = named[-1].dims[-1] if position and place == 0 and named[-1].dims else None
            if before and before.size is not None and before.size != dim.size:
                met = f"In {shorten(text)} a dim of {before.size} meets one of {dim.size}"
                raise InputError(f"{met}; they must be equal to be summed.")
            after = operands[position + 1].dims[:1] if place == len(dims) - 1 and position + 1 < len(operands) else ()
            joined = before.name if before else (after[0].name if after and after[0].name else next(fresh, ""))
            if not joined:
                raise InputError(f"{shorten(text)} has too many dims without names; name them.")
            dims[place] = replace(dim, name=joined)
        named.append(replace(array, dims=tuple(dims)))
    if output is None or all(dim.name for dim in output.dims):
        return named, output
    free = _matmul_output(named, text).dims
    if len(free) != len(output.dims):
        has = f"In {shorten(text)} the output has {len(output.dims)} dims without names where {len(free)} are left"
        raise InputError(f"{has}; name them.")
    dims = tuple(dim if dim.name else replace(dim, name=kept.name) for dim, kept in zip(output.dims, free, strict=True))
    return named, replace(output, dims=dims)


def _matmul_output(operands: list[Array], text: str) -> Array:
    """What a chain of matrix multiplications leaves: the last dim on the left goes, everything else stays."""
    kept: list[Dim] = list(operands[0].dims)
    for array in operands[1:]:
        if not kept or kept[-1].name not in array.names:
            last = f"the last dim on the left, {kept[-1].name if kept else 'nothing'},"
            lacks = f"In {shorten(text)} {last} is not a dim of {shorten(str(array))}"
            raise InputError(f"{lacks}; give the output with '->'.")
        summed = kept.pop().name
        present = {dim.name for dim in kept}
        kept += [dim for dim in array.dims if dim.name != summed and dim.name not in present]
    dims: list[Dim] = []
    used: set[str] = set()
    for dim in kept:
        axes = tuple(axis for axis in dim.axes if axis not in used)
        used.update(axes)
        dims.append(replace(dim, axes=axes))
    return Array("", tuple(dims), operands[0].dtype)


def _check(line: Einsum, text: str) -> None:
    sizes: dict[str, int] = {}
    for array in (*line.operands, line.output):
        for dim in array.dims:
            if dim.size is not None and sizes.setdefault(dim.name, dim.size) != dim.size:
                two = f"{sizes[dim.name]} and {dim.size}"
                raise InputError(f"In {shorten(text)} the dim {dim.name} has two sizes, {two}.")
    known = {name for array in line.operands for name in array.names}
    known |= {dim.select for array in line.operands for dim in array.dims if dim.select}
    for dim in line.output.dims:
        if dim.name not in known:
            raise InputError(f"In {shorten(text)} the output has the dim {dim.name}, which no operand has.")
    if len(line.indices) > MAX_INDICES:
        raise InputError(f"{shorten(text)} has {len(line.indices)} different dims; at most {MAX_INDICES} are allowed.")
