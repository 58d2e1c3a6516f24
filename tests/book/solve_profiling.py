"""Solutions of the chapter on profiles: HLO asked of the reader, with texts as the book prints them, compiled here, or
of a TPU's compiler."""

from typing import Any

import dragonscale as ds
from dragonscale.commands.hlo.hlo_blocks import _operand_text  # pyright: ignore[reportPrivateUsage]
from dragonscale.physics.rooflines import Cost, Rates, roofline
from tests.book.casebook import solves
from tests.book.solve_jax_stuff import device_mesh, jax_of_devices
from tests.evidence.xla_fixtures import NAMES, text_of


def shape_text(dims: list[int], dtype: str = "f32", layout: str = "") -> str:
    return f"{dtype}[{','.join(map(str, dims))}]{layout}"


def row_major(dims: list[int], tiles: str) -> str:
    order = ",".join(map(str, reversed(range(len(dims)))))
    return f"{{{order}:T{tiles}}}"


@solves("profiling.compile_pipeline")
def compile_pipeline(_: dict[str, Any]) -> dict[str, Any]:
    return {"order": [point.name for point in ds.hlo("pipeline").points]}


@solves("profiling.hlo_dot_flops")
def dot_flops(given: dict[str, Any]) -> dict[str, Any]:
    """JAX writes the HLO, before any optimization."""
    jax = jax_of_devices()
    numbers = (((given["lhs_c"],), (given["rhs_c"],)), ((), ()))
    shapes = [jax.ShapeDtypeStruct(tuple(given[name]), "float32") for name in ("lhs", "rhs")]
    lowered = jax.jit(lambda x, y: jax.lax.dot_general(x, y, numbers)).lower(*shapes)
    text = lowered.as_text("hlo")
    program = ds.hlo(text)
    line = next(line for line in text.splitlines() if " dot(" in line)
    return {"out": ds.hlo(line).results[0].shape, "flops": program.matmul_flops}


@solves("profiling.hlo_parse_fusion3")
def parse_fusion(given: dict[str, Any]) -> dict[str, Any]:
    op = ds.hlo(given["op"])
    (result,) = op.results
    return {
        "name": op.name,
        "dtype": result.dtype,
        "shape": result.shape,
        "minor_to_major": result.minor_to_major,
        "tiles": result.tiles,
        "memory_space": result.memory_space,
        "memory": result.memory,
        "operands": [_operand_text(operand) for operand in op.operands],
        "kind": op.fusion_kind,
        "calls": op.calls[0],
    }


@solves("profiling.hlo_memory_spaces")
def memory_spaces(_: dict[str, Any]) -> dict[str, Any]:
    named = {space: ds.hlo(f"f32[8]{{0:T(128)S({space})}}").array.memory for space in range(4)}
    assert ds.hlo("f32[8]{0:T(128)}").array.memory == named[0]
    others = {named[2], named[3]}
    assert not others & {named[0], named[1], "host"}
    return {"S0": f"{named[0]} (may be omitted)", "S1": named[1], "S2_S3": "other memory spaces"}


@solves("profiling.tiling_pad_3x5")
def padded_small(given: dict[str, Any]) -> dict[str, Any]:
    array = ds.hlo(
        shape_text(given["shape"], "f32", row_major(given["shape"], str(tuple(given["tile"])).replace(" ", "")))
    ).array
    assert array.bytes == array.elements * given["itemsize"]
    return {"padded": array.padded, "expansion": array.expansion, "bytes": array.padded_bytes}


@solves("profiling.tiling_two_level_4x8")
def two_levels(given: dict[str, Any]) -> dict[str, Any]:
    tiles = "".join(str(tuple(tile)).replace(" ", "") for tile in given["tiles"])
    return {"offsets": ds.hlo(shape_text(given["shape"], "bf16", row_major(given["shape"], tiles))).offsets}


@solves("profiling.layout_order")
def layout_order(given: dict[str, Any]) -> dict[str, Any]:
    orders = {"m2m_10": "{1,0}", "m2m_01": "{0,1}"}
    return {name: ds.hlo(shape_text(given["shape"], layout=order)).array.physical for name, order in orders.items()}


@solves("profiling.tiling_pad_2x8192")
def padded_wide(given: dict[str, Any]) -> dict[str, Any]:
    array = ds.hlo(
        shape_text(given["shape"], "bf16", row_major(given["shape"], f"({','.join(map(str, given['tile']))})(2,1)"))
    ).array
    return {"padded": array.padded, "expansion": array.expansion}


@solves("profiling.bf16_inner_tile")
def inner_tile(given: dict[str, Any]) -> dict[str, Any]:
    """How many rows of a column lie side by side, and the bytes that makes."""
    report = ds.hlo(f"bf16[8,128]{{1,0:T(8,128)({given['rows']},1)}}")
    column = [row[0] for row in report.offsets]
    beside = next(place for place, offset in enumerate(column) if offset != place)
    return {"load_bytes": beside * report.array.bytes / report.array.elements}


def projection(given: dict[str, Any]) -> Any:
    """The query projection as the book's profile shows it: a fusion whose inside is not to be seen."""
    sizes = {"b": 8, "T": 1024, "D": 8192, "heads_local": 8, "H": 256} | given
    b, tokens, d, heads, h = (sizes[name] for name in ("b", "T", "D", "heads_local", "H"))
    operands = f"bf16[{b},{tokens},{d}] %x, bf16[{d},{heads},{h}] %w"
    return ds.hlo(f"%fusion.169 = bf16[{b},{tokens},{heads},{h}] fusion({operands}), kind=kOutput, calls=%fused")


@solves("profiling.ffw_tokens_per_shard")
def tokens_per_shard(given: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": projection(given).matmuls[0].m}


@solves("profiling.q_projection_time")
def projection_time(given: dict[str, Any]) -> dict[str, Any]:
    flops = projection(given).matmul_flops
    rates = Rates(flops={("matrix", "bf16"): given["C_core"]})
    expected = roofline(Cost(flops={("matrix", "bf16"): flops}), rates).lower
    return {"flops": flops, "expected": expected, "utilisation": expected / given["measured"]}


@solves("profiling.reduce_scatter_pattern")
def reduce_scatter_pattern(_: dict[str, Any]) -> dict[str, Any]:
    """As XLA's TPU compiler writes it, and what the reader finds inside."""
    text = text_of("v5p_canonical_fsdp_tp_out")
    row = next(row for row in ds.hlo(text).ops if row.kind == "reduce_scatter")
    op = ds.hlo(next(line for line in text.splitlines() if f"{row.name} = " in line))
    return {"pattern": row.detail.split(" and "), "kind": op.fusion_kind, "calls": op.calls[0].partition(".")[0]}


@solves("profiling.fusion_content_rule")
def fusion_content(_: dict[str, Any]) -> dict[str, Any]:
    """Counted in every program of a TPU's compiler that is kept here."""
    names = [name for name in NAMES if name.startswith(("v5p_canonical", "tpu7x"))]
    programs = [ds.hlo(text_of(name)) for name in names]
    most = max(program.most_matmuls_in_a_fusion for program in programs)
    return {"max_matmuls": most, "plus": ds.hlo("fusions").points[1].name}


def matvec(given: dict[str, Any]) -> str:
    """The fusion of the first question, with the inside that its profile counts: a product and a sum along each row."""
    n, k = given["n"], given["k"]
    return f"""HloModule jit_matmul
%add (a: bf16[], b: bf16[]) -> bf16[] {{
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %sum = bf16[] add(%a, %b)
}}
%fused (p0: bf16[{n},{k}], p1: bf16[{k}]) -> bf16[{n}] {{
  %p0 = bf16[{n},{k}]{{1,0}} parameter(0)
  %p1 = bf16[{k}]{{0}} parameter(1)
  %rows = bf16[{n},{k}]{{1,0}} broadcast(%p1), dimensions={{1}}
  %product = bf16[{n},{k}]{{1,0}} multiply(%p0, %rows)
  %zero = bf16[] constant(0)
  ROOT %reduced = bf16[{n}]{{0}} reduce(%product, %zero), dimensions={{1}}, to_apply=%add
}}
ENTRY %main (w: bf16[{n},{k}], x: bf16[{k}]) -> bf16[{n}] {{
  %w = bf16[{n},{k}]{{1,0}} parameter(0)
  %x = bf16[{k}]{{0}} parameter(1)
  ROOT %fusion.1 = bf16[{n}]{{0}} fusion(%w, %x), kind=kLoop, calls=%fused
}}
"""


@solves("profiling.q1_profiler_fields")
def profiler_fields(given: dict[str, Any]) -> dict[str, Any]:
    (row,) = ds.hlo(matvec(given)).ops
    flops = row.matmul_flops + row.vector_flops
    cost = Cost(flops={("vector", "bf16"): flops}, bytes={"hbm": row.hbm_bytes})
    return {
        "model_flops": flops,
        "bytes_accessed": row.hbm_bytes,
        "intensity": cost.intensity(),
        "achieved_bw": row.hbm_bytes / given["t"],
    }


@solves("profiling.q1_local_shapes")
def local_shapes(given: dict[str, Any]) -> dict[str, Any]:
    w, x = shape_text(given["w"], "bf16"), shape_text(given["x"], "bf16")
    op = ds.hlo(f"%fusion.1 = bf16[{given['w'][0]}] fusion({w} %w, {x} %x), kind=kOutput, calls=%dot")
    (sizes,) = op.matmuls
    return {"out": [sizes.m], "contract": sizes.k}


@solves("profiling.q1_model_parallelism")
def model_parallelism(given: dict[str, Any]) -> dict[str, Any]:
    groups = f"{{{{{','.join(map(str, given['group']))}}},...}}"
    group = ds.hlo(
        f"%all-reduce = bf16[8192] all-reduce(bf16[8192] %fusion), replica_groups={groups}, to_apply=%add"
    ).group
    return {"degree": group.degree, "stride": group.stride, "min_devices": group.at_least}


@solves("profiling.q1_code")
def two_matmuls(_: dict[str, Any]) -> dict[str, Any]:
    """The two einsums, compiled with F split over the devices, make just those ops: two matmuls, then an all-reduce."""
    jax = jax_of_devices()
    einsums, mesh = ["fw,bw->bf", "wf,bf->bw"], device_mesh(X=8)

    def program(x: Any, up: Any, down: Any) -> Any:
        return jax.numpy.einsum(einsums[1], down, jax.numpy.einsum(einsums[0], up, x))

    specs = {"x": ((2, 64), jax.P()), "up": ((128, 64), jax.P("X")), "down": ((64, 128), jax.P(None, "X"))}
    arrays = [
        jax.ShapeDtypeStruct(shape, "float32", sharding=jax.NamedSharding(mesh, spec)) for shape, spec in specs.values()
    ]
    compiled = jax.jit(program, out_shardings=jax.NamedSharding(mesh, jax.P())).lower(*arrays).compile()
    report = ds.hlo(compiled.as_text())
    kinds = {row.kind for row in report.ops}
    assert {"matmul", "all_reduce"} <= kinds <= {"matmul", "all_reduce", "copy", "elementwise"}
    assert sum(row.kind == "matmul" for row in report.ops) == len(einsums)
    assert [row.degree for row in report.collectives] == [8]
    assert [one.whole for one in report.parameters] == [list(shape) for shape, _ in specs.values()]
    return {"einsums": einsums}


@solves("profiling.q2_speedups")
def speedups(given: dict[str, Any]) -> dict[str, Any]:
    return {"speedup": [before / after for before, after in zip(given["before"], given["after"], strict=True)]}


@solves("profiling.hlo_parse_1d")
def parse_one_dim(given: dict[str, Any]) -> dict[str, Any]:
    array = ds.hlo(given["text"]).array
    assert array.memory_space == 0
    return {
        "dtype": array.dtype,
        "shape": array.shape,
        "minor_to_major": array.minor_to_major,
        "tiles": array.tiles,
        "memory": f"{array.memory} (S omitted)",
    }


@solves("profiling.hlo_layout_4d")
def layout_of_four(given: dict[str, Any]) -> dict[str, Any]:
    order = ",".join(map(str, given["m2m"]))
    return {"physical": ds.hlo(shape_text(given["shape"], "bf16", f"{{{order}}}")).array.physical}
