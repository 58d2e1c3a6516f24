"""What a NamedSharding lays where, and what XLA must insert."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.problems.sharding.flags import given
from dragonscale.course.words import amount, count
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.sharding import Mesh, local_bytes, local_shape, replicated_over, strategies
from dragonscale.physics.sharding.layout import block_of
from dragonscale.physics.sharding.partition_spec import partition_spec_text

MESHES = ({"X": 4, "Y": 2}, {"X": 2, "Y": 4}, {"X": 8, "Y": 4}, {"X": 4, "Y": 4})
KINDS = ("none", "all_gather", "reduce_scatter", "all_reduce", "all_to_all")
LINES = (
    "In[B_X, D_Y] @ W[D_Y, F] -> Out[B_X, F]",
    "In[B_X, D_Y] @ W[D_Y, F] -> Out[B_X, F_Y]",
    "In[B_X, D] @ W[D, F_Y] -> Out[B_X, F_Y]",
    "In[B_X, D_Y] @ W[D, F_Y] -> Out[B_X, F_Y]",
    "In[B_X, D] @ W[D_X, F_Y] -> Out[B_X, F_Y]",
    "In[B, D_Y] @ W[D_Y, F] -> Out[B, F]",
    "In[B, D] @ W[D, F_Y] -> Out[B, F]",
    "In[B_X, D] @ W[D_X, F] -> Out[B_X, F]",
)


def made(mesh: dict[str, int]) -> str:
    """A mesh as JAX makes it."""
    return f"jax.make_mesh({tuple(mesh.values())}, {tuple(mesh)})"


@problem(
    "jax",
    "Bytes of a NamedSharding",
    mesh=MESHES,
    layout=("[B_X, D_Y]", "[B_Y, D]", "[B_XY, D]", "[B, D_X]", "[B, D_XY]"),
    dtype=("bf16", "fp32"),
    shape=((1024, 2048), (8, 2048), (8192, 8192), (512, 16384)),
)
def bytes_of_a_named_sharding(mesh: dict[str, int], layout: str, dtype: str, shape: tuple[int, int]) -> Posed | None:
    array, chips, sizes = parse_array(f"A:{dtype}{layout}"), Mesh(mesh), dict(zip("BD", shape, strict=True))
    if any(sizes[dim.name] % chips.size(*dim.axes) for dim in array.dims):
        return None
    held, own, spec = local_bytes(array, sizes, chips), local_shape(array, sizes, chips), partition_spec_text(array)
    size = {"bf16": 2, "fp32": 4}[dtype]
    whole = shape[0] * shape[1] * size
    wrong = (
        Trap(whole / chips.chips, "An axis that the spec does not name holds copies.")
        if replicated_over(array, chips)
        else Trap(whole / chips.size("X"), "Both axes split it.")
    )
    return Posed(
        ask=f"mesh = {made(mesh)}. An array of {dtype}{list(shape)} has the sharding "
        f"NamedSharding(mesh, {spec}). How many bytes of it lie on each device?",
        answer=held,
        dimension="bytes",
        hints=(
            "A PartitionSpec names the mesh axes of each dim by position; a dim without one is whole.",
            "local shape = each dim over the sizes of its axes; times the bytes of an element",
        ),
        steps=(
            f"{shape[0]} x {shape[1]} becomes {own[0]} x {own[1]}",
            f"{own[0]} · {own[1]} · {size} = {count(held)} bytes = {amount(held, 'bytes')}",
        ),
        traps=(wrong, Trap(held / size, f"{dtype} has {size} bytes.")),
        check=f'dscale shard "A:{dtype}{layout}" --mesh {given(mesh)} --sizes {given(sizes)} | '
        'grep -E "holds  |^A.*B "',
    )


@problem(
    "jax",
    "How many ways an array is split",
    cases=("jax-stuff.auto_sharding_degrees:W",),
    mesh=({"X": 4, "Y": 2}, {"X": 2, "Y": 8}, {"X": 8, "Y": 4}, {"X": 16, "Y": 4}),
    layout=("[D_Y, F]", "[D, F_X]", "[D_X, F]", "[D_XY, F]", "[D_X, F_Y]"),
)
def ways_of_a_spec(mesh: dict[str, int], layout: str) -> Posed:
    array, chips = parse_array(f"W{layout}"), Mesh(mesh)
    over = replicated_over(array, chips)
    ways, spec = float(chips.chips / chips.size(*over)), partition_spec_text(array)
    traps = (
        [Trap(float(chips.size(*over)), "That is the number of copies of each part.")]
        if over
        else [Trap(float(chips.size("X")), "Both axes split it.")]
    )
    return Posed(
        ask=f"mesh = {made(mesh)}, W has NamedSharding(mesh, {spec}). Into how many different parts is W split?",
        answer=ways,
        whole=True,
        hints=("Axes that the spec does not name hold copies.", "ways = product of the sizes of the axes in the spec"),
        steps=(
            f"the spec names {', '.join(array.axes)}",
            (
                f"{' · '.join(str(mesh[axis]) for axis in array.axes)} = {ways:.0f} parts, each on "
                f"{chips.size(*over)} devices"
            ),
        ),
        traps=(
            *traps,
            *([Trap(float(chips.chips), "Not every device has another part: some axes hold copies.")] if over else []),
        ),
        check=calc(" * ".join(str(mesh[axis]) for axis in array.axes)),
    )


@problem(
    "jax",
    "Which rows lie on a device",
    mesh=({"X": 2, "Y": 4}, {"X": 4, "Y": 2}, {"X": 4, "Y": 4}),
    order=("YX", "XY", "X", "Y"),
    device=(5, 1, 2, 3, 6, 7),
    rows=(64, 512, 4096),
)
def rows_of_a_device(mesh: dict[str, int], order: str, device: int, rows: int) -> Posed | None:
    chips, at = Mesh(mesh), dict(zip("XY", divmod(device, mesh["Y"]), strict=True))
    array = parse_array(f"A[I_{order}, J]")
    block, ways = block_of(tuple(order), at, chips), int(chips.size(*order))
    first, wrong = block * rows // ways, device * rows // int(chips.chips)
    if first == 0 or first == wrong:
        return None
    major = f"{' · '.join(order)}, the first the major one" if len(order) > 1 else order
    return Posed(
        ask=f"mesh = {made(mesh)}, its devices numbered row by row. An array of {rows} rows has "
        f"NamedSharding(mesh, {partition_spec_text(array)}). Which row (from 0) is the "
        f"first on device {device}?",
        answer=float(first),
        whole=True,
        hints=(
            "Where on the mesh is the device? The last axis runs fastest.",
            f"block = the device's place along {major}; first row = block · rows / {ways}",
        ),
        steps=(
            f"device {device} is at X={at['X']}, Y={at['Y']}",
            f"block {block} of {ways}, {rows // ways} rows each",
            f"first row {first}",
        ),
        traps=(Trap(float(wrong), "The order of the axes in the spec decides, not the device's number."),),
        check=f'dscale shard "A[I_{order}, J]" --mesh {given(mesh)} --sizes I={rows},J=8 | grep '
        f'-E "X  Y|^ *{device}  "',
    )


@problem("jax", "What XLA must insert", line=LINES, mesh=MESHES, width=(2048, 4096), batch=(256, 8192))
def what_xla_inserts(line: str, mesh: dict[str, int], width: int, batch: int) -> Posed | None:
    read, sizes = parse_einsum(line), {"B": batch, "D": width, "F": 4 * width}
    steps = strategies(read, sizes, Mesh(mesh))[0].collectives
    if len(steps) > 1:
        return None
    found = steps[0].kind if steps else "none"
    specs = [partition_spec_text(array) for array in (*read.operands, read.output)]
    told = (
        f"over {', '.join(steps[0].axes)}: {steps[0].before} -> {steps[0].after}"
        if steps
        else "each device multiplies what it has"
    )
    return Posed(
        ask=f'mesh = {made(mesh)}. jnp.einsum("BD,DF->BF", In, W) with B={batch}, D={width}, '
        f"F={4 * width}, In {specs[0]}, W {specs[1]}, and out_shardings {specs[2]}. Which "
        "collective does the cheapest program need?",
        answer=found,
        hints=(
            "Write it in the notation: which axis splits the summed D, on which side?",
            (
                "D split alike on both sides leaves partial sums; on one side only, or with an "
                "axis used twice, something is gathered."
            ),
        ),
        steps=(f"{line}", f"{found} {told}"),
        check=f'dscale shard "{line}" --mesh {given(mesh)} --sizes {given(sizes)} --no-backward '
        '--alternatives 1 | grep "Needs"',
        options=KINDS,
        shown="no communication" if found == "none" else "",
    )


@problem(
    "jax",
    "Bytes that enter the AllReduce",
    cases=("jax-stuff.auto_allreduce_bytes:bytes",),
    mesh=MESHES,
    batch=(8, 64, 1024),
    width=(2048, 4096),
    hidden=(8192, 16384, 28672),
)
def bytes_into_the_all_reduce(mesh: dict[str, int], batch: int, width: int, hidden: int) -> Posed:
    line, sizes = parse_einsum(LINES[0]), {"B": batch, "D": width, "F": hidden}
    chips = Mesh(mesh)
    [step] = strategies(line, sizes, chips)[0].collectives if batch < width else [None]
    held = local_bytes(line.output, sizes, chips)
    assert step is None or step.volume(sizes, chips) == held
    rows = batch // mesh["X"]
    return Posed(
        ask=f"mesh = {made(mesh)}. In bf16[{batch}, {width}] has P('X', 'Y'), W bf16[{width}, "
        f"{hidden}] has P('Y', None); jnp.einsum(\"BD,DF->BF\", In, W) shall have P('X', "
        "None). How many bytes of bf16 partial sums does each device put into the "
        "AllReduce?",
        answer=held,
        dimension="bytes",
        hints=(
            "D is split over Y on both sides: every device has a partial sum of its rows of the output.",
            "bytes = (B / X) · F · 2",
        ),
        steps=(
            f"rows: {batch} / {mesh['X']} = {rows}; columns: all {hidden}",
            f"{rows} · {hidden} · 2 = {count(held)} bytes",
        ),
        traps=(
            Trap(held / mesh["Y"], "The partial sums are not split over Y; they are to be added along it."),
            Trap(held * mesh["X"], "X splits the rows of the output."),
            Trap(held / 2, "bf16 has two bytes."),
        ),
        check=f'dscale shard "{LINES[0]}" --mesh {given(mesh)} --sizes {given(sizes)} '
        '--no-backward --alternatives 1 --width 110 | grep -E "^Out"',
    )
