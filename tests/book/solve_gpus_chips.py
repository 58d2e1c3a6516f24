"""Solutions of the chapter on GPUs: the chip itself."""

from typing import Any

from dragonscale.course.closed_forms.chip_parts import (
    cores_filled,
    counterpart,
    flops_per_usd,
    implied_clock,
    matrix_flops_per_cycle,
    resident_warps,
    vector_alus,
    vector_flops,
)
from dragonscale.course.closed_forms.costs import pointwise_cost
from dragonscale.physics.hardware import Chip, load_chip
from dragonscale.physics.hardware.parts import PARTS, alus, cores, matrix_units, vector_units
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import Roofline, einsum_cost, rates_of, roofline, symbol
from tests.book.casebook import solves


def book(name: str) -> Chip:
    """A chip with the book's readings of its numbers."""
    return load_chip(name).reading("book")


@solves("gpus.spec_v100", "gpus.spec_h200", "gpus.spec_b200")
def spec_row(given: dict[str, Any]) -> dict[str, Any]:
    chip = book(given["chip"].lower())
    row: dict[str, Any] = {
        "sms": cores(chip),
        "smem_per_sm": chip.structure["smem_per_sm"],
        "l2": chip.memory["l2"].capacity,
        "hbm_capacity": chip.hbm.capacity,
        "hbm_bw": chip.hbm.bandwidth,
        "registers_per_sm": chip.structure["register_bytes_per_sm"],
    }
    if "base_clock" in chip.structure:
        row["clock"] = [chip.structure["base_clock"], chip.structure["clock"]]
    row |= {dtype: chip.matrix[dtype] for dtype in ("bf16", "fp8", "fp4") if dtype in chip.matrix}
    return row | ({"tmem_per_sm": chip.structure["tmem_per_sm"]} if "tmem" in chip.memory else {})


@solves("gpus.component_map")
def component_map(_: dict[str, Any]) -> dict[str, Any]:
    return {part: counterpart(part) for part in PARTS["gpu"].values()}


@solves("gpus.tensor_core_flops_per_cycle_h100")
def tensor_core(given: dict[str, Any]) -> dict[str, Any]:
    chip = book("h100")
    assert (cores(chip), chip.peak("bf16")) == (given["sms"], given["peak"])
    assert matrix_units(chip) == given["sms"] * given["tc_per_sm"]
    each = matrix_flops_per_cycle(chip, clock=given["clock"])
    side = round((each / 2) ** (1 / 3))  # of the cube of a matmul with so many FLOPs
    return {"flops_per_cycle": each, "equivalent_matmul": f"{side}x{side}x{side}"}


@solves("gpus.tensor_core_flops_per_cycle_b200")
def tensor_cores(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("b200")
    assert (chip.peak("bf16"), cores(chip)) == (given["peak"], given["sms"])
    older = {name: book(name.lower()).structure["flops_per_cycle_per_tensor_core"] for name in ("V100", "A100")}
    return {"B200": matrix_flops_per_cycle(chip, clock=given["clock"])} | older


@solves("gpus.register_file")
def register_file(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("h100")
    assert chip.structure["registers_per_sm"] == given["words_per_subpartition"] * given["subpartitions"]
    return {
        "bytes_per_sm": chip.structure["register_bytes_per_sm"],
        "warps": resident_warps(chip, given["regs_per_thread"]),
    }


@solves("gpus.l2_vs_hbm")
def l2_over_hbm(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("h100")
    assert (chip.bandwidth("l2"), chip.bandwidth("hbm")) == (given["l2"], given["hbm"])
    assert chip.facts["memory.l2.bandwidth"].direction == "read"
    one_way = chip.bandwidth("l2") / chip.bandwidth("hbm")
    return {"one_way": one_way, "bidi": 2 * one_way}


@solves("gpus.simd_units_h100")
def simd_units(_: dict[str, Any]) -> dict[str, Any]:
    gpu, tpu = load_chip("h100"), load_chip("v5p")
    return {
        "h100_warp_schedulers": vector_units(gpu),
        "h100_alus": alus(gpu),
        "tpu_v5p_vpu_slots": vector_units(tpu),
        "tpu_v5p_mxus": matrix_units(tpu),
        "tpu_alus_per_core": vector_alus(tpu),
    }


@solves("gpus.onchip_memory_table")
def onchip_memory(_: dict[str, Any]) -> dict[str, Any]:
    gpu, tpu = book("h100"), load_chip("v5p")
    return {
        "h100_smem": gpu.memory["smem"].capacity,
        "h100_regs": gpu.memory["registers"].capacity,
        "v5p_vmem": tpu.memory["vmem"].capacity,
        "v5p_vregs": tpu.memory["registers"].capacity / cores(tpu),
    }


@solves("gpus.h200_vs_v5p")
def h200_and_v5p(given: dict[str, Any]) -> dict[str, Any]:
    gpu, tpu = book("h200"), load_chip("v5p")
    assert (gpu.peak("bf16"), tpu.peak("bf16")) == (given["h200_flops"], given["v5p_flops"])
    assert (gpu.hbm.capacity, tpu.hbm.capacity) == (given["h200_hbm"], given["v5p_hbm"])
    return {
        "flops_ratio": gpu.peak("bf16") / tpu.peak("bf16"),
        "hbm_ratio": gpu.hbm.capacity / tpu.hbm.capacity,
        "price_h200": gpu.price,
        "price_v5p": tpu.price,
        "flops_per_usd_h200": flops_per_usd(gpu),
        "flops_per_usd_v5p": flops_per_usd(tpu),
    }


@solves("gpus.q1_1_alus")
def alu_counts(_: dict[str, Any]) -> dict[str, Any]:
    return {name: alus(load_chip(name.removeprefix("TPU_").lower())) for name in ("H100", "B200", "TPU_v5p")}


@solves("gpus.q1_2_vector_flops")
def vector_rates(given: dict[str, Any]) -> dict[str, Any]:
    chip = book("h100")
    assert (alus(chip), chip.structure["base_clock"], chip.structure["clock"]) == tuple(given.values())
    boost = vector_flops(chip)
    return {
        "base": vector_flops(chip, chip.structure["base_clock"]),
        "boost": boost,
        "tc_ratio": chip.peak("bf16") / boost,
    }


@solves("gpus.q1_3_intensity")
def critical_intensities(given: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for name in ("h100", "b200"):
        peak, bandwidth = given[name]
        chip = load_chip(name).with_facts(**{"matrix.fp16": peak, "memory.hbm.bandwidth": bandwidth})
        answer |= {f"{name}_{dtype}": chip.intensity(dtype) for dtype in ("fp16", "fp8")}
    return answer


def bound_of(result: Roofline) -> str:
    return "compute" if result.bound == "compute" else "memory"


@solves("gpus.q1_4_small_matmul", "gpus.q1_4_large_matmul")
def matmul_on_b200(given: dict[str, Any]) -> dict[str, Any]:
    small = "hbm_bw" in given
    chip = book("b200")
    assert given in ({"hbm_bw": chip.bandwidth("hbm")}, {"peak": chip.peak("fp16")})
    line = parse_einsum(f"fp16[B={64 if small else 512}, D=4096] @ fp16[D, F=8192]")
    result = roofline(einsum_cost(line), rates_of(chip))
    answer = {"t": result.lower, "bound": bound_of(result)}
    return answer | ({"bytes": result.cost.bytes["hbm"]} if small else {})


@solves("gpus.q1_5_smem")
def scratchpads(given: dict[str, Any]) -> dict[str, Any]:
    chip = book("h100")
    assert (cores(chip), chip.structure["smem_per_sm"]) == (given["sms"], given["smem"])
    smem, registers = (chip.memory[name].capacity for name in ("smem", "registers"))
    return {"smem": smem, "registers": registers, "sum": smem + registers}


@solves("gpus.q1_6_b200_clock")
def b200_clock(given: dict[str, Any]) -> dict[str, Any]:
    chip = book("b200")
    assert (chip.peak("fp32", "vector"), alus(chip)) == (given["vector_flops"], given["cores"])
    return {
        "flops_per_cycle": vector_flops(chip, clock=1, fused=True),
        "clock": implied_clock(chip, chip.peak("fp32", "vector")),
    }


@solves("gpus.q1_7_add_intensity")
def add_intensity(_: dict[str, Any]) -> dict[str, Any]:
    cost = pointwise_cost(symbol("N"), reads=2, writes=1, flops=1, dtype="fp32")
    return {"flops": cost.total_flops, "bytes": cost.bytes["hbm"], "intensity": cost.intensity()}


@solves("gpus.q1_7_partial_occupancy")
def partial_occupancy(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("h100")
    assert chip.structure["alus_per_sm"] == given["alus_per_sm"]
    busy = cores_filled(chip, given["N"])
    return {"sms": busy, "slowdown": cores(chip) / busy}


@solves("gpus.spec_table_intensities")
def table_intensities(_: dict[str, Any]) -> dict[str, Any]:
    return {name: book(name.lower()).intensity("bf16") for name in ("A100", "H100", "H200", "B200")}
