"""Plans against compiled programs: all that were compiled for the docs' table, as they were read then, and a few
compiled now."""

import gzip
import importlib.util
import statistics
from functools import cache
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

from dragonscale.evidence.verify import compiling
from dragonscale.evidence.verify.comparing import compare, verify
from dragonscale.evidence.verify.planned import plan_of
from dragonscale.evidence.verify.records import Made, Request, VerifyReport

MADE = Path(__file__).parent / "data" / "verify_made.jsonl.gz"


class Both(msgspec.Struct):
    """A request and what a compiler made of it."""

    request: Request
    made: Made


@cache
def reports() -> list[VerifyReport]:
    lines = gzip.decompress(MADE.read_bytes()).splitlines()
    known = [msgspec.json.decode(line, type=Both) for line in lines]
    return [compare(each.request, plan_of(each.request), each.made) for each in known]


def test_there_are_both_compilers_training_and_serving_dense_and_experts() -> None:
    asked = [report.request for report in reports()]
    assert {each.program for each in asked} == {"train", "prefill", "decode"}
    assert {each.slice.partition(":")[0] for each in asked} >= {"h100", "v5e", "v5p", "v6e"}
    assert {each.model for each in asked} >= {"llama3-8b", "llama3-70b", "mixtral-8x7b", "deepseek-v3"}


def test_arguments_and_flops_are_those_planned() -> None:
    for report in reports():
        if report.compiled:
            assert report.arguments is not None
            assert report.flops is not None
            assert report.arguments.verdict == "agrees", report.request
            assert report.flops.verdict in ("agrees", "explained"), report.request


def test_bytes_on_every_axis_agree_or_are_explained() -> None:
    compiled = [report for report in reports() if report.compiled]
    good = [report for report in compiled if all(each.line.verdict != "differs" for each in report.axes)]
    assert len(good) >= 0.95 * len(compiled)


def test_the_peak_is_modelled() -> None:
    found = [r.peak.planned / r.peak.compiled - 1 for r in reports() if r.compiled and r.peak is not None]
    assert statistics.median(map(abs, found)) < 0.07


def test_no_accepted_plan_is_rejected_by_the_compiler() -> None:
    assert [r.request for r in reports() if r.fits_planned and not r.fits_compiled] == []


needs_gpu_compiler = pytest.mark.skipif(
    importlib.util.find_spec("jax_plugins") is None, reason="needs the extra gpu-compiler"
)


PIPED = "pipe=2,fsdp=2,tensor=2"


@needs_gpu_compiler
@pytest.mark.parametrize(
    "request_",
    [
        Request("decode", "qwen3-30b-a3b", "h100:8", "tensor=4,data=2,expert=8", 16, 1024),
        pytest.param(
            Request("train", "llama3.2-1b", "h100:8", "fsdp=4,tensor=2,remat=block", 8, 2048), marks=pytest.mark.slow
        ),
        pytest.param(
            Request("train", "llama3.2-1b", "h100:8", "fsdp=8,remat=block", 8, 2048, "full"), marks=pytest.mark.slow
        ),
        pytest.param(
            Request("train", "qwen3-30b-a3b", "h100:32", "fsdp=4,expert=8,remat=matmuls", 32, 2048),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Request("train", "llama3.2-1b", "h100:8", "fsdp=8,remat=block:6", 16, 4096), marks=pytest.mark.slow
        ),
        pytest.param(
            Request("train", "llama3.2-1b", "h100:8", f"{PIPED},remat=none", 16, 1024), marks=pytest.mark.slow
        ),
        pytest.param(
            Request("train", "llama3-8b", "h100:8", f"{PIPED},virtual=2,schedule=interleaved,zero=1", 16, 1024),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Request("train", "llama3.2-1b", "h100:8", f"{PIPED},remat=none,schedule=zb-h1", 16, 1024),
            marks=pytest.mark.slow,
        ),
        pytest.param(Request("prefill", "mixtral-8x7b", "h100:8", "tensor=8", 2, 2048), marks=pytest.mark.slow),
    ],
    ids=lambda each: f"{each.program}-{each.model}",
)
def test_a_program_compiled_now_is_the_planned_one(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGONSCALE_CACHE", str(tmp_path))
    report = verify(request_)
    assert report.verdict in ("agrees", "explained"), report
    assert report.resident_bytes < 2 * 2**30
    assert all(each.agrees for each in report.overlap)
    assert verify(request_).seconds == report.seconds  # from the cache


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu, on x86-64")
@pytest.mark.slow
def test_a_program_compiled_for_tpus_now_is_the_planned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGONSCALE_CACHE", str(tmp_path))
    report = verify(Request("train", "llama3-70b", "v5p:8x16x16", "fsdp=256,tensor=8,remat=block", 1024, 8192))
    assert report.verdict in ("agrees", "explained"), report


def test_a_spoilt_cache_entry_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGONSCALE_CACHE", str(tmp_path))
    monkeypatch.setattr(compiling, "check_installed", lambda _: None)
    answers = iter([Made({}, 1.0, 0.0, failed="stopped"), Made({}, 2.0, 0.0), Made({}, 3.0, 0.0)])
    monkeypatch.setattr(compiling, "_run", lambda *_: next(answers))
    asked = Request("train", "llama3-8b", "h100:8", "fsdp=8", 8, 2048)
    assert [compiling.compile_apart(asked).seconds for _ in range(3)] == [1.0, 2.0, 2.0]  # what failed is not kept
    (entry,) = (tmp_path / "verify").iterdir()
    entry.write_text("{")
    assert compiling.compile_apart(asked).seconds == 3.0
