"""Einsum lines: `A[I_X, J] @ B[J_X, K] -> C[I, K]`.

Operands are joined by `@`, `·`, `*` or commas, and an arrow gives the output. Dims with the same name are the same
index; an index that the output lacks is contracted. Without an arrow the output is that of matrix multiplication: the
last dim of the left operand is contracted, every other index stays. Dims known only by size are matched by position, as
in `bf16[B, 8192] @ bf16[8192, 28672]`.

>>> line = parse_einsum("A[I_X, J] @ B[J_X, K] -> C[I, K]")
>>> line.contracted, str(line)
(('J',), 'A[I_X, J] · B[J_X, K] -> C[I, K]')
>>> matmul = parse_einsum("bf16[B,8192] @ bf16[8192,28672]")
>>> matmul.indices, matmul.sizes
(('B', 'I', 'J'), {'I': 8192, 'J': 28672})
"""

import itertools
from dataclasses import dataclass, replace

from dragonscale.errors import InputError, shorten
from dragonscale.physics.notation.array import MAX_LENGTH, Array, Dim, parse_array, split_top, without
from dragonscale.physics.numbers import Number, product

MAX_INDICES = 26  # letters


@dataclass(frozen=True)
class Einsum:
    """Arrays multiplied and summed over every index that the output lacks."""

    operands: tuple[Array, ...]
    output: Array

    def __str__(self) -> str:
        return f"{' · '.join(map(str, self.operands))} -> {self.output}"

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The operands and the output."""
        return (*self.operands, self.output)

    @property
    def dims(self) -> list[Dim]:
        """The dims of all arrays, one array after the other."""
        return [dim for array in self.arrays for dim in array.dims]

    @property
    def indices(self) -> tuple[str, ...]:
        """Every index, in order of first appearance. An index selected by another (`e:x`) is not iterated over."""
        return tuple(dict.fromkeys(dim.name for dim in self.dims if not dim.select))

    @property
    def contracted(self) -> tuple[str, ...]:
        """The indices that are summed over."""
        return without(self.indices, self.output.names)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes written in the line, by index."""
        return {dim.name: dim.size for dim in self.dims if dim.size is not None}

    def flops(self, sizes: dict[str, Number]) -> Number:
        """Multiply-adds counted as two: twice the product of all index sizes, or once if nothing is summed."""
        flops_per_point = 2 if self.contracted else len(self.operands) - 1
        return flops_per_point * product(sizes[index] for index in self.indices)

    @property
    def axes(self) -> tuple[str, ...]:
        """Every mesh axis that the line names, in order of first appearance."""
        return tuple(dict.fromkeys(axis for array in self.arrays for axis in (*array.axes, *array.partial)))


def parse_einsum(text: str) -> Einsum:
    """Read an einsum line of one or more operands. See the module's examples."""
    if len(text) > MAX_LENGTH:
        raise InputError(f"The expression {shorten(text)} is {len(text)} characters long; {MAX_LENGTH} are allowed.")
    left, arrow, right = text.replace("→", "->").partition("->")
    parts = list(split_top(left.replace(" . ", " @ "), "@·*×,"))
    if not left.strip() or not all(map(str.strip, parts)):
        advice = "write arrays joined by '@', such as 'A[I_X, J] @ B[J, K] -> C[I_X, K]'."
        raise InputError(f"{shorten(text)} is not an einsum; {advice}")
    operands = list(map(parse_array, parts))
    if "->" in right:
        raise InputError(f"{shorten(text)} has two arrows; one output is allowed.")
    output = parse_array(right) if arrow else None
    operands, output = _name_sizes(operands, output, text)
    if output and len(operands) == 1 and not output.dtype:
        output = replace(output, dtype=operands[0].dtype)  # a reshard does not convert
    line = Einsum(tuple(operands), output or _matmul_output(operands, text))
    _check(line, text)
    return line


def check_sizes(line: Einsum, text: str) -> None:
    """Refuse dims of two sizes."""
    sizes: dict[str, int] = {}
    for dim in line.dims:
        if dim.size is not None and sizes.setdefault(dim.name, dim.size) != dim.size:
            raise InputError(f"In {shorten(text)} the dim {dim.name} has two sizes, {sizes[dim.name]} and {dim.size}.")


def parse_chain(text: str) -> list[Einsum]:
    """Read a chain of matrix multiplications as one einsum after the other.

    In `In[B, D] · W_in[D, F] · W_out[F, D] -> Out[B, D]` the D that goes in is contracted by the first matmul and the D
    that comes out belongs to the second, which a single einsum could not express. The intermediates are T1, T2, …

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
        product_ = _matmul_output([left, right], text)
        output = replace(product_, name=f"T{number}").with_layout({})
        if number == len(whole.operands) - 1:
            output = whole.output
            if set(product_.names) != set(output.names):
                remaining, wanted = ", ".join(product_.names), ", ".join(output.names)
                raise InputError(
                    f"In {shorten(text)} the chain leaves the dims {remaining}, but the output has {wanted}."
                )
        lines.append(Einsum((left, right), output))
        left = output
    return lines


def _name_sizes(operands: list[Array], output: Array | None, text: str) -> tuple[list[Array], Array | None]:
    """Operands and output with names for the dims known only by size: neighbours in a matmul chain share one, the
    others get unused letters."""
    used = set(itertools.chain.from_iterable(array.names for array in (*operands, output) if array))
    unused = iter(without("IJKLMNOPQRSTUVWXYZ", used))
    named: list[Array] = []
    for position, array in enumerate(operands):
        dims = list(array.dims)
        for index, dim in enumerate(dims):
            if dim.name:
                continue
            name = ""
            if index == 0 and named and named[-1].dims:
                # contracted with the last dim of the operand before
                before = named[-1].dims[-1]
                if before.size is not None and before.size != dim.size:
                    raise InputError(
                        f"In {shorten(text)} a dim of {before.size} meets one of {dim.size}; they must be equal to be "
                        "summed."
                    )
                name = before.name
            elif index == len(dims) - 1 and position + 1 < len(operands) and operands[position + 1].dims:
                # contracted with the first dim of the operand after, which may have a name
                name = operands[position + 1].dims[0].name
            name = name or next(unused, "")
            if not name:
                raise InputError(f"{shorten(text)} has too many dims without names; name them.")
            dims[index] = replace(dim, name=name)
        named.append(replace(array, dims=tuple(dims)))
    if output is None or all(output.names):
        return named, output
    remaining = _matmul_output(named, text).dims
    if len(remaining) != len(output.dims):
        raise InputError(
            f"In {shorten(text)} the output has {len(output.dims)} dims without names where {len(remaining)} are left; "
            "name them."
        )
    pairs = zip(output.dims, remaining, strict=True)
    dims = tuple(replace(dim, name=dim.name or product_dim.name) for dim, product_dim in pairs)
    return named, replace(output, dims=dims)


def _matmul_output(operands: list[Array], text: str) -> Array:
    """The output of a chain of matrix multiplications: the last dim on the left is contracted, the others stay."""
    remaining: list[Dim] = list(operands[0].dims)
    for array in operands[1:]:
        last = remaining[-1].name if remaining else ""
        if last not in array.names:
            shown = f"the last dim on the left, {last or 'nothing'},"
            raise InputError(
                f"In {shorten(text)} {shown} is not a dim of {shorten(str(array))}; give the output with '->'."
            )
        remaining.pop()
        present = {last, *(dim.name for dim in remaining)}
        remaining += [dim for dim in array.dims if dim.name not in present]
    dims: list[Dim] = []
    used: set[str] = set()  # an axis splits the first of the dims that name it
    for dim in remaining:
        axes = without(dim.axes, used)
        used.update(axes)
        dims.append(replace(dim, axes=axes))
    return Array("", tuple(dims), operands[0].dtype)


def _check(line: Einsum, text: str) -> None:
    """Refuse dims of two sizes, dims of the output that no operand has, and more indices than letters."""
    check_sizes(line, text)
    names: set[str] = set()  # of the operands' dims, and of those that select their entries (x of e:x)
    for array in line.operands:
        for dim in array.dims:
            names.update((dim.name, dim.select))
    for dim in line.output.dims:
        if dim.name not in names:
            raise InputError(f"In {shorten(text)} the output has the dim {dim.name}, which no operand has.")
    if len(line.indices) > MAX_INDICES:
        raise InputError(f"{shorten(text)} has {len(line.indices)} different dims; at most {MAX_INDICES} are allowed.")
