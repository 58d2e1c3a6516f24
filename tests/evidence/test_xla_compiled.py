"""The whole record of a compiled program: it travels as JSON, and its layouts and memory agree with the compiler's own
sums."""

import time

import msgspec
import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.xla.compiled import SENTINEL, from_json, mesh_axes, read_compiled, to_json
from dragonscale.evidence.xla.hlo_text import read_module
from dragonscale.evidence.xla.layouts import padded_bytes, read_arrays
from dragonscale.evidence.xla.memory import parse_oom
from tests.evidence.xla_fixtures import FOLDER, GPU_MESH, NAMES, SHIPPED, about, compiled, text_of

GIB = 2**30


@pytest.mark.parametrize("name", NAMES)
def test_a_record_travels_as_json(name: str) -> None:
    found = compiled(name)
    assert from_json(to_json(found)) == found
    assert found.products or found.collectives or found.unknown


def test_other_json_is_refused() -> None:
    with pytest.raises(InputError, match="not the record of a compiled program"):
        from_json(b'{"name": "x"}')


@pytest.mark.parametrize("name", [name for name in NAMES if about(name)["memory"]])
def test_padded_arguments_are_the_compilers_own_sum(name: str) -> None:
    found = compiled(name)
    assert found.memory is not None
    assert sum(parameter.padded_bytes for parameter in found.parameters) == found.memory.arguments_bytes
    assert all(parameter.logical_bytes <= parameter.padded_bytes for parameter in found.parameters)


LAYOUTS = {
    "bf16[100,200]{1,0:T(8,128)(2,1)}": 104 * 256 * 2,
    "bf16[100,200]{0,1:T(8,128)(2,1)}": 200 * 128 * 2,  # the other dim is the minor one
    "f32[3,5,7]{2,1,0:T(8,128)}": 3 * 8 * 128 * 4,
    "f32[1000]{0:T(1024)}": 1024 * 4,
    "s8[33,1]{1,0:T(32,128)(4,1)}": 64 * 128,
    "bf16[7]{0:T(256)}": 256 * 2,
    "f32[]{:T(128)}": 128 * 4,
    "s4[16,256]{1,0:T(8,128)(8,1)E(4)}": 16 * 256 // 2,
    "bf16[4,4]{1,0}": 32,
    "pred[3]": 3,
    "(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, token[])": 8 * 128 * 2,
}


@pytest.mark.parametrize(("shape", "size"), LAYOUTS.items())
def test_padding(shape: str, size: int) -> None:
    assert padded_bytes(shape) == size


def test_memory_spaces() -> None:
    assert [each.space for each in read_arrays("(f32[8]{0:T(128)S(1)}, f32[8]{0:T(128)S(5)}, f32[8])")] == [1, 5, 0]
    assert padded_bytes("f32[8,8]{1,0:T(*,128)}") == 128 * 4  # 64 elements as one dim


def test_cycles_are_summed_by_place_in_the_program_and_marks_are_dropped() -> None:
    cycles = compiled("v5p_canonical_mlp_train").cycles
    assert cycles.dropped == 0
    assert [kernel.cycles for kernel in cycles.kernels] == sorted(
        (each.cycles for each in cycles.kernels), reverse=True
    )
    assert "dot_general" in cycles.kernels[0].op_name
    # 24 products of 2.7e11 FLOPs at 459 TFLOP/s and 1.75 GHz would take 25 million cycles.
    assert 1.0 < cycles.total / (24 * 274877906944 / 459e12 * 1.75e9) < 20
    text = text_of("v5p_canonical_mlp_train").replace('"estimated_cycles":"', f'"estimated_cycles":"{SENTINEL}')
    marked = read_compiled(text, None, about("v5p_canonical_mlp_train")["mesh"]).cycles
    assert (marked.kernels, marked.dropped > 10) == ((), True)


def test_the_mesh_must_be_the_modules() -> None:
    with pytest.raises(InputError, match=r"for 8 devices and the mesh .* has 4"):
        read_compiled(text_of("h100_mlp"), None, {"x": 4})
    with pytest.raises(InputError, match="over device 7; the mesh has 4"):
        mesh_axes(False, ((0, 7),), (("x", 4),))


def test_parts_of_axes() -> None:
    assert mesh_axes(False, ((0, 1), (2, 3), (4, 5), (6, 7)), (("x", 2), ("y", 4))) == (("y",), False)
    assert mesh_axes(False, ((0,), (1,)), (("x", 2),)) == ((), True)
    assert mesh_axes(True, ((0, 2), (2, 0)), (("x", 2), ("y", 2))) == (("x",), True)


def test_a_large_module_is_read_in_seconds() -> None:
    """Three megabytes: many copies of the same computations, under other names, called one after another."""
    text = text_of("h100_mlp")
    head, entry = text.split("\nENTRY ")
    tables, computations = head.split("\n%", 1)
    copies = 50
    renamed = [f"%{computations}".replace("%", f"%c{copy}_") for copy in range(copies)]
    whole = "\n".join([tables, *renamed, f"%{computations}", f"\nENTRY {entry}"])
    started = time.process_time()
    found = read_compiled(whole, None, GPU_MESH)
    assert len(whole) > 2.5e6
    assert time.process_time() - started < 10
    assert found.flops == compiled("h100_mlp").flops


TOTAL = """RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. \
Used 18.22G of 15.75G hbm. Exceeded hbm capacity by 2.47G.

Total hbm usage >= 18.47G:
    reserved        258.01M
    program           5.00G
    arguments        13.22G

  Largest program allocations in hbm:

  1. Size: 2.50G
     Operator: op_name="jit(decode)/while/body/dynamic_update_slice"
     Shape: bf16[80,16,8192,1,128]{4,2,3,1,0:T(8,128)(2,1)}
     Unpadded size: 2.50G
     XLA label: copy.27 = copy(param.4)
     Allocation type: HLO temp
     ==========================

  2. Size: 512.0M
     Shape: f32[4,8]{1,0}
     Unpadded size: 256.5K
"""
SINGLE = (
    "RESOURCE_EXHAUSTED: Allocation (size=85899345920) would exceed memory (size=17179869184) :: #allocation257 "
    "[shape = 'bf16[80,16,4096,8192]{3,2,1,0:T(8,128)(2,1)}', space=hbm, size = 0xffffffffffffffff, tag = "
    "'output of custom-call.13@{}'] :: x"
)


def test_a_program_that_does_not_fit_says_what_it_asked_for() -> None:
    oom = parse_oom(TOTAL)
    assert oom is not None
    assert (oom.asked_bytes, oom.capacity_bytes, oom.covers) == (18.22 * GIB, 15.75 * GIB, "everything")
    assert oom.excess_bytes == pytest.approx(oom.asked_bytes - oom.capacity_bytes, rel=1e-3)
    first, second = oom.buffers
    assert (first.size_bytes, first.unpadded_bytes, first.label) == (2.5 * GIB, 2.5 * GIB, "copy.27 = copy(param.4)")
    assert first.op_name == "jit(decode)/while/body/dynamic_update_slice"
    assert padded_bytes(first.shape) == 2.5 * GIB
    assert (second.size_bytes, second.unpadded_bytes, second.op_name) == (512 * 2**20, 256.5 * 1024, "")


def test_one_buffer_larger_than_all_memory() -> None:
    oom = parse_oom(SINGLE)
    assert oom is not None
    assert (oom.asked_bytes, oom.capacity_bytes, oom.excess_bytes) == (80 * GIB, 16 * GIB, 64 * GIB)
    assert oom.covers == "one buffer"
    (buffer,) = oom.buffers
    assert (buffer.shape, buffer.label) == (
        "bf16[80,16,4096,8192]{3,2,1,0:T(8,128)(2,1)}",
        "output of custom-call.13@{}",
    )
    assert msgspec.json.decode(msgspec.json.encode(oom), type=type(oom)) == oom


def test_temporaries_larger_than_all_memory() -> None:
    oom = parse_oom(
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (51.44G) "
        "exceeds available HBM (15.75G)."
    )
    assert oom is not None
    assert (oom.covers, oom.asked_bytes, oom.capacity_bytes) == ("temporaries", 51.44 * GIB, 15.75 * GIB)


def test_other_messages_are_not_about_memory() -> None:
    assert parse_oom("INVALID_ARGUMENT: no such topology") is None


def test_fixtures_are_small_and_hold_no_paths() -> None:
    for name in NAMES:
        assert len(SHIPPED.get(name, FOLDER / f"{name}.hlo.gz").read_bytes()) < 60_000
        files = [line for line in read_module(text_of(name)).tables.splitlines() if line.endswith('"')]
        assert not any("/" in line for line in files)
