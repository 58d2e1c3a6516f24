"""What a function under shard_map sees and returns."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.jax.shardings import made
from dragonscale.course.problems.sharding.flags import given
from dragonscale.course.words import number
from dragonscale.physics.notation import parse_array
from dragonscale.physics.sharding import Mesh, local_shape
from dragonscale.physics.sharding.partition_spec import partition_spec_text

MESHES = ({"X": 2, "Y": 4}, {"X": 4, "Y": 2}, {"X": 4, "Y": 4}, {"X": 2, "Y": 8})


@problem(
    "jax",
    "The shape inside shard_map",
    cases=("jax-stuff.shard_map_slice_average:local_len",),
    mesh=MESHES,
    length=(512, 1024, 4096),
    layout=("[I_XY]", "[I_X]", "[I_Y]"),
)
def length_inside_shard_map(mesh: dict[str, int], length: int, layout: str) -> Posed:
    array, chips = parse_array(f"x{layout}"), Mesh(mesh)
    own = float(local_shape(array, {"I": length}, chips)[0])
    axes = array.dims[0].axes
    spec = partition_spec_text(array)
    other = length / chips.chips if len(axes) == 1 else length / mesh["X"]
    return Posed(
        ask=f"mesh = {made(mesh)}. A function under jax.shard_map has in_specs={spec}, and is "
        f"called with jnp.arange({length}). How long is the array that it sees?",
        answer=own,
        whole=True,
        hints=("Inside shard_map a function sees one device's part.", "length / product of the axes in the spec"),
        steps=(f"the spec splits over {', '.join(axes)}", f"{length} / {chips.size(*axes)} = {own:.0f}"),
        traps=(
            Trap(float(length), "That is the whole array; inside is one part."),
            Trap(other, "Only the axes in the spec split it." if len(axes) == 1 else "Both axes split it."),
        ),
        check=f'dscale shard "x{layout}" --mesh {given(mesh)} --sizes I={length} | grep -E "holds  |^x.*B "',
    )


@problem(
    "jax",
    "A mean over devices",
    mesh=MESHES,
    length=(512, 1024, 2048, 256),
    element=(0, 1, 2, 3),
)
def mean_over_devices(mesh: dict[str, int], length: int, element: int) -> Posed:
    chips = Mesh(mesh)
    own, devices = int(local_shape(parse_array("x[I_XY]"), {"I": length}, chips)[0]), int(chips.chips)
    answer = own * (devices - 1) / 2 + element
    first = own - 1
    return Posed(
        ask=f"mesh = {made(mesh)}. Under jax.shard_map with in_specs=P(('X', 'Y')), "
        "out_specs=P(), a function returns jax.lax.pmean(x[:4], ('X', 'Y')) of x = "
        f"jnp.arange({length}). What is the element [{element}] of the result?",
        answer=answer,
        hints=(
            "Device i has the numbers from i · n on, n the length of a part.",
            "the mean over i of i · n + j is n · (devices − 1) / 2 + j",
        ),
        steps=(f"n = {length} / {devices} = {own}", f"{own} · {devices - 1} / 2 + {element} = {number(answer)}"),
        traps=(
            Trap(first / 2, "pmean is the mean over devices, not over the elements of one part."),
            Trap(answer * devices, "That is psum, the sum."),
            Trap((length - 1) / 2, "That is the mean of the whole array; each part gives only its first four.")
            if abs((length - 1) / 2 - answer) > 0.02 * answer
            else Trap(own * devices / 2 + own, "Device i begins at i · n, from i = 0."),
        ),
        check=f'dscale calc "{own} * ({devices} - 1)/2 + {element}"',
        tolerance=0.002,
    )


@problem(
    "jax",
    "A roll inside a shard",
    cases=("jax-stuff.q1_2_roll_minus:first_rows",),
    rows=(512, 256, 1024),
    columns=(8, 4, 16),
    shift=(5, 3, 10, 1),
    ways=(4, 2, 8),
)
def roll_inside_a_shard(rows: int, columns: int, shift: int, ways: int) -> Posed:
    own = int(local_shape(parse_array("x[I_X, J]"), {"I": rows, "J": columns}, Mesh({"X": ways}))[0])
    answer = float(columns * (own - shift))
    return Posed(
        ask=f"x = jnp.arange({rows * columns}).reshape({rows}, {columns}) is split over "
        f"X={ways} by rows. Under jax.shard_map each device computes jnp.roll(x, {shift}, "
        f"axis=0) - x. Which number stands in the first {shift} rows of each part?",
        answer=answer,
        whole=True,
        hints=(
            "A roll inside a part brings its own last rows to its beginning.",
            (
                "a row further down is larger by the number of columns; the first rows receive "
                "what lay (rows of a part − shift) below"
            ),
        ),
        steps=(
            f"a part has {rows} / {ways} = {own} rows",
            f"row r receives row r + {own - shift}, larger by {columns} · {own - shift} = {answer:.0f}",
        ),
        traps=(
            Trap(
                float(columns * (rows - shift)), "Rows do not come from other devices: the roll wraps within the part."
            ),
            Trap(float(columns * shift), f"That is what the other rows get, as {-columns * shift}."),
        ),
        check=f'dscale calc "{columns} * ({rows}/{ways} - {shift})"',
    )
