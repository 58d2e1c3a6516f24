"""HLO text from elsewhere: every dialect gives the same program, pieces are read, hostile text is one sentence in
linear time."""

import gzip
import random
import re
import time
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.evidence.profiles.opening import read_recording
from dragonscale.evidence.xla.dumps import read_dump_file
from dragonscale.listener import Listener
from tests.evidence.xla_fixtures import NAMES, text_of

LONG = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(bf16[64,256]{1,0}, bf16[256,512]{1,0})->bf16[64,512]{1,0}}

%fused (p0: bf16[64,256], p1: bf16[256,512]) -> bf16[64,512] {
  %p0 = bf16[64,256]{1,0} parameter(0)
  %p1 = bf16[256,512]{1,0} parameter(1)
  %d = bf16[64,512]{1,0} dot(bf16[64,256]{1,0} %p0, bf16[256,512]{1,0} %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = bf16[64,512]{1,0} tanh(bf16[64,512]{1,0} %d)
}

ENTRY %main (x: bf16[64,256], w: bf16[256,512]) -> bf16[64,512] {
  %x = bf16[64,256]{1,0} parameter(0)
  %w = bf16[256,512]{1,0} parameter(1)
  ROOT %fusion = bf16[64,512]{1,0} fusion(bf16[64,256]{1,0} %x, bf16[256,512]{1,0} /*index=1*/%w), kind=kOutput, calls=%fused,
    metadata={op_name="jit(f)/dot_general" source_file="f.py"
      source_line=3}
}
"""
SHORT = re.sub(r"(?<=[(,] )?bf16\[[\d,]+\]\{1,0\} (?:/\*index=1\*/)?(?=%\w+[,)])", "", LONG)
BARE = re.sub(r"^(ENTRY )?%?(\w+) \(.*\) -> .*\{$", r"\1\2 {", SHORT, flags=re.MULTILINE).replace("%", "")
INDENTED = "\n".join(f"    {line}" for line in SHORT.splitlines()[2:])
REACHED = {
    "long": LONG,
    "short": SHORT,
    "without % signs and signatures": BARE,
    "indented, without the first line": INDENTED,
}


@pytest.mark.parametrize("dialect", REACHED)
def test_every_dialect_is_the_same_program(dialect: str) -> None:
    program = ds.hlo(REACHED[dialect])
    (row,) = program.ops
    assert (row.name, row.kind, row.matmul_flops) == ("fusion", "matmul", 2 * 64 * 256 * 512)
    assert row.hbm_bytes == 2 * (64 * 256 + 256 * 512 + 64 * 512)
    assert (row.scope, row.source) == ("jit(f)/dot_general", "f.py:3")


def test_a_piece_is_read_and_what_is_missing_is_said() -> None:
    piece = "\n".join(line for line in LONG.splitlines() if line.startswith("  ROOT %fusion"))
    op = ds.hlo(piece.rstrip(","), on="v5e")
    assert op.matmul_flops == 2 * 64 * 256 * 512
    assert (op.bound_by, "what it runs inside" in op.unknown) == ("HBM", True)
    program = ds.hlo(LONG[LONG.index("ENTRY") :])
    assert program.matmul_flops == op.matmul_flops
    assert any("not in the text" in one for one in program.unknown)


def test_a_folder_of_dumps_and_the_buffers_beside(tmp_path: Path) -> None:
    dump = tmp_path / "module_0001.jit_f.gpu_after_optimizations.txt"
    dump.write_text(SHORT)
    beside = tmp_path / "module_0001.jit_f.gpu_after_optimizations-buffer-assignment.txt"
    beside.write_text(
        "BufferAssignment:\nallocation 0: size 32768, parameter 0, shape |bf16[64,256]| at ShapeIndex {}:\n"
        " value: <1 x @0> (size=32768,offset=0): bf16[64,256]{1,0}\n"
        "allocation 1: size 65536, output shape is |bf16[64,512]|, maybe-live-out:\nallocation 2: size 100, "
        "preallocated-temp:\n"
    )
    memory = ds.hlo(str(tmp_path)).memory
    assert memory is not None
    assert (memory.arguments_bytes, memory.outputs_bytes, memory.temp_bytes) == (32768, 65536, 100)
    packed = tmp_path / "packed.hlo.gz"
    packed.write_bytes(gzip.compress(LONG.encode() + BARE.replace("jit_f", "jit_g").encode()))
    assert [one.name for one in read_dump_file(packed)] == ["jit_f", "jit_g"]
    recording = read_recording(str(packed), Listener())
    assert (sorted(recording.programs), len(recording.events.start), recording.software) == (
        ["jit_f", "jit_g"],
        0,
        "XLA HLO",
    )
    assert ds.hlo(str(packed), module="jit_g").name == "jit_g"


def test_local_shapes_back_to_global() -> None:
    sharded = SHORT.replace(
        "%w = bf16[256,512]{1,0} parameter(1)",
        "%w = bf16[256,512]{1,0} parameter(1), sharding={devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
    )
    x, w = ds.hlo(sharded).parameters
    assert (x.whole, w.local, w.whole, w.copies) == (None, [256, 512], [512, 512], 4)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("h100_mlp", {64, 256, 512}), ("v5p_canonical_mlp_train", {8192, 4096, 16384}), ("tpu7x_canonical_case2", {8192})],
)
def test_matmuls_have_the_sizes_of_the_program_that_was_written(name: str, sizes: set[int]) -> None:
    """Batch or tokens, width and hidden size, as `data/xla/README.md` has them; on a device they are divided."""
    rows = [row for row in ds.hlo(text_of(name)).ops if row.kind == "matmul"]
    assert {size for row in rows for size in row.whole[1:]} == sizes
    assert {tuple(row.whole[:1]) for row in rows} == {(1,)}


HOSTILE = {
    "deep brackets": "HloModule m\nENTRY e {\n  ROOT a = " + "(" * 200_000,
    "open quotes": 'HloModule m\nENTRY e {\n  ROOT a = f32[8] add(b), x="' + '\\"' * 200_000,
    "open lists": "HloModule m\nENTRY e {\n  ROOT a = f32[8] add(b), x=" + "{{1" * 200_000,
    "open calls": "HloModule m\nENTRY e {\n  ROOT a = f32[8] fusion(b), " + "calls={" * 200_000 + "\n}",
    "open comments": "HloModule m\nENTRY e {\n  ROOT a = f32[8] add(" + "/*" * 200_000 + ")\n}",
    "heads": "HloModule m\nENTRY e (" + ") -> (" * 100_000,
    "lines": "HloModule m\nENTRY e {\n  ROOT a = f32[8] add(b),\n" + "x\n" * 200_000,
    "itself": "HloModule m\nENTRY e {\n  ROOT a = f32[8] call(), to_apply=e\n}",
    "each other": (
        "HloModule m\na {\n  ROOT x = f32[8] call(), to_apply=b\n}\nb {\n  ROOT x = f32[8] call(), "
        "to_apply=a\n}\nENTRY e {\n  ROOT x = f32[8] call(), to_apply=a\n}"
    ),
    "values of each other": "HloModule m\nc {\n  p = (s32[]) parameter(0)\n  ROOT x = pred[] compare(x, x), direction=LT\n}\n"
    "ENTRY e {\n  s = (s32[]) tuple()\n  ROOT w = (s32[]) while(s), condition=c, body=c\n}",
    "a large window": (
        "%a = f32[9,9] convolution(f32[9,9,99999999] %x, f32[9,9,99999999] %y), dim_labels=bf0_io0->bf0, "
        "window={size=99999999}"
    ),
    "many devices": "%a = f32[8] all-reduce(f32[8] %x), replica_groups=[1,999999999999]<=[999999999999]",
    "a large array": f"%a = f32[{10**17},{10**17}] add(f32[8] %x, f32[8] %x)",
    "a large number": "%a = f32[8] parameter(" + "9" * 5000 + ")",
    "spaces": "%a = f32[8] all-reduce(f32[8] %x), replica_groups={" + "{1}" + " " * 100_000 + "x}",
    "nothing": "   ",
    "not a name": "\0\x1b[2J",
    "MLIR": "module @jit_f {\n  func.func public @main() {\n  }\n}",
}


def refusal(text: str) -> str:
    """The sentence that a text is refused with, or nothing where it is answered."""
    try:
        ds.hlo(text, on="v5e").sheet()
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_text_is_one_sentence_or_an_answer(what: str) -> None:
    begun = time.process_time()
    assert len(refusal(HOSTILE[what])) < 600
    assert time.process_time() - begun < 5


def test_a_chain_of_sums_is_followed_once() -> None:
    """Doubling a value 60 times asks for it 2 to the 60 times, unless somebody gives up."""
    chain = "\n".join(f"  a{place + 1} = s32[] add(a{place}, a{place})" for place in range(60))
    text = (
        f"HloModule m\nc {{\n  p = (s32[]) parameter(0)\n  a0 = s32[] get-tuple-element(p), index=0\n{chain}\n  n = "
        "s32[] constant(9)\n  ROOT t = pred[] compare(a60, n), direction=LT\n}\nENTRY e {\n  z = s32[] "
        "constant(0)\n  s = (s32[]) tuple(z)\n  ROOT w = (s32[]) while(s), condition=c, body=c\n}"
    )
    assert [loop.trips for loop in ds.hlo(text).loops] == [None]


def test_broken_programs_are_one_sentence() -> None:
    """Real programs with pieces cut out, doubled and changed: an answer or a sentence, nothing else."""
    source = random.Random(7)
    names = [name for name in NAMES if len(text_of(name)) < 40_000]
    for _ in range(120):
        text = list(text_of(source.choice(names)))
        for _ in range(source.randint(1, 6)):
            at, size = source.randrange(len(text)), source.choice((1, 3, 40, 400))
            change = source.choice(("cut", "double", "swap"))
            piece = text[at : at + size]
            new = {
                "cut": [],
                "double": piece * 2,
                "swap": [source.choice('{}()[]%,="0123456789abS*- \n') for _ in piece],
            }[change]
            text[at : at + size] = new
        assert "\n" not in refusal("".join(text))


def test_a_folder_is_asked_for_any_of_its_modules(tmp_path: Path) -> None:
    for number, name in enumerate(("jit_f", "jit_g")):
        file = tmp_path / f"module_000{number}.{name}.cpu_after_optimizations.txt"
        file.write_text(SHORT.replace("jit_f", name) + "\n" * (1 - number))  # jit_f is the larger one
        file.with_name(f"{file.stem}-memory-usage-report.txt").write_text("Total bytes used: 7\n" * 900)
    assert ds.hlo(str(tmp_path)).name == "jit_f"
    assert ds.hlo(str(tmp_path), module="jit_g").name == "jit_g"
    with pytest.raises(InputError, match=r"did you mean 'jit_g'.*jit_f, jit_g"):
        ds.hlo(str(tmp_path), module="jit_gg")
    assert list(read_recording(str(tmp_path), Listener()).programs) == ["jit_f"]


def test_a_file_without_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "nothing.gz"
    file.write_bytes(gzip.compress(b""))
    with pytest.raises(InputError, match="is empty"):
        ds.hlo(str(file))
    file.write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    with pytest.raises(InputError, match=r"binary.*dscale profile"):
        ds.hlo(str(file))
