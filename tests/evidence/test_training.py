"""Measured training runs: what rows mean, how they are scored, and what becomes of bad files."""

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.choices import summary, training_choices, weigh
from dragonscale.evidence.described import Described, described, model_of
from dragonscale.evidence.rows import Skip
from dragonscale.evidence.score import by, statistics_of
from dragonscale.evidence.training import predict, training_runs, validate
from dragonscale.evidence.training_rows import published_run, run_of, stack_of
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.numbers import first_number

from .measured import DATA, by_id, write_rows

FILE = DATA / "training.csv"


@pytest.fixture(scope="module")
def report():
    return validate(FILE)


@pytest.fixture(scope="module")
def runs():
    return {run.row.id: run for run in training_runs(FILE)[0]}


@pytest.fixture(scope="module")
def rows():
    return by_id("training")


def model(row):
    return model_of(Described(**described(row, 2)))


def test_the_record(report, runs):
    found = report.as_json()
    assert found["rows"] == 26
    assert found["scored"] == 21
    assert found["skipped"] == {
        "only adapters are trained (LoRA)": 1,
        "layers not stated": 1,
        "global_batch not stated": 1,
        "pp without vpp stated": 2,
    }
    assert found["mape"] <= 0.12
    assert found["median_ape"] <= 0.07
    assert found["memory"]["rows"] == 5
    assert found["memory"]["median_ape"] <= 0.08
    fitting = sum(
        first_number(verdict.hbm_bytes) <= run.job.slice.chip.visible for run, verdict in map(predict, runs.values())
    )
    stated, unstated = found["fits"]["stated"], found["fits"]["unstated"]
    assert (found["fits"]["rows"], found["fits"]["fit"]) == (21, fitting)
    assert {name: stated[name] + unstated[name] for name in stated} == {"rows": 21, "fit": fitting}
    assert stated["rows"] == found["recompute_stated"]["rows"]
    assert found["band"]["nominal"] == 0.8
    assert 0.6 <= found["band"]["shipped"] <= 1
    assert fitting == 21  # all of them ran
    assert found["recompute_chosen"]["rows"] + found["recompute_stated"]["rows"] == found["scored"]
    assert set(found["by_source"]) == {row.source for row in report.scored}


def test_megatron_rows(report):
    groups = by(report.scored, lambda row: row.id[3:7])
    assert statistics_of([*groups["SC21"], *groups["KORT"]])["mape"] <= 0.04


def test_plans_of_rows(runs):
    assert str(runs["TR-SC21-006"].plan) == (
        "fsdp=32,tensor=8,pipe=4,microbatch=2,virtual=3,remat=block,zero=0,schedule=interleaved,sequence=false"
    )
    two = runs["TR-TPUR-034"].plan
    assert (two.fsdp, two.microbatch) == (64, 4)  # JAX devices are half a chip
    assert runs["TR-MBRIDGE-008"].plan.expert == 8
    assert runs["TR-MXT5E-014"].job.slice.pods == 2
    assert not runs["TR-DGXC-004"].remat_known


def test_chip_variants(runs):
    chip = runs["TR-TITAN-002"].job.slice.chip
    assert chip.power == 500
    assert chip.hbm.capacity == 96e9
    assert chip.bandwidth("hbm") == 2.4e12


def test_networks_of_rows(runs):
    leaf = runs["TR-SC21-006"].job.slice.chip.network.levels[1]
    assert leaf.bandwidth == 200e9


def test_models_of_rows(rows):
    parameters = {name: count_parameters(model(rows[name])).total for name in ("TR-SC21-009", "TR-MBRIDGE-008")}
    assert parameters["TR-SC21-009"] == pytest.approx(529.6e9, rel=0.01)
    assert parameters["TR-MBRIDGE-008"] == pytest.approx(30.5e9, rel=0.01)


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        ("GQA alternating sliding-window-128/full", {128: 18, None: 18}),
        ("GQA chunked-8192 (3 of 4 layers)", {None: 36}),
        ("GQA sliding-1024 + global(hd512,kv2)", {1024: 30, None: 6}),
    ],
)
def test_windows(rows, attention, expected):
    row = rows["TR-DGXC-004"] | {"attention": attention, "layers": "36"}
    windows = [layer.mixer.window for layer in model(row).layers]
    assert {size: windows.count(size) for size in set(windows)} == expected


def test_latent_attention_and_further_tokens(rows):
    text = "MLA(q_lora1536,kv_lora512,qk128+64,v128)"
    row = rows["TR-MBRIDGE-008"] | {"attention": text, "notes": "MTP head included"}
    found = model(row)
    assert found.layers[0].mixer.kv_rank == 512
    assert found.extras
    assert not model(row | {"notes": "w/o MTP"}).extras
    with pytest.raises(Skip, match="latent"):
        model(row | {"attention": "MLA"})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n_chips": ""}, "n_chips not stated"),
        ({"tp": "3"}, "multiply"),
        ({"chip": "z80"}, "unknown chip"),
        ({"dtype": "unknown"}, "dtype"),
        ({"step_s": "", "tokens_per_s_per_chip": ""}, "neither step time"),
        ({"source": "hearsay"}, "no software stack"),
        ({"global_batch": "100"}, "does not divide"),
    ],
)
def test_reasons_for_leaving_rows_out(rows, change, reason):
    with pytest.raises(Skip, match=reason):
        run_of(published_run(rows["TR-DGXC-004"] | change, 2))


def test_step_time_from_tokens(rows):
    row = rows["TR-DGXC-004"]
    rate = 1024 * 8192 / 12.33 / 64
    assert published_run(row | {"step_s": "", "tokens_per_s_per_chip": str(rate)}, 2).step_s == pytest.approx(12.33)


def test_unknown_recomputation_takes_the_fastest_that_fits(runs):
    chosen, verdict = predict(runs["TR-DGXC-004"])
    assert chosen.plan.remat == "none"
    assert first_number(verdict.hbm_bytes) <= chosen.job.slice.chip.visible


def test_stacks():
    assert stack_of("NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md [26.08 container]") == "megatron-bridge"
    assert stack_of("NVIDIA-NeMo/Megatron-Bridge [25.09 container]") == "megatron-core"
    bridge = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary-archive.md"
    assert stack_of(bridge, f"GPT OSS 120B on gb300 {bridge} [26.02 container]") == "megatron-alltoall"
    assert stack_of(bridge, f"GPT OSS 120B on b300 {bridge} [26.04 container]") == "megatron-core"
    assert stack_of(bridge, f"DeepSeekV3 on b200 {bridge} [26.04.01 container]") == "megatron-overlap"
    assert stack_of(bridge, f"Qwen3_235B_a22B on h100 {bridge} [26.04 container]") == "megatron-alltoall-overlap"
    assert stack_of(bridge, f"dropless unless labelled tokendrop Kimi_K2 on gb300 {bridge}") == "megatron-core"
    assert stack_of(f"{bridge} [26.06", f"Kimi_K2 on gb300 {bridge} [26.06 container]") == "megatron-core"
    assert stack_of(f"{bridge} [26.06", f"DeepSeekV3 on gb300 {bridge} [26.06 container]") == "megatron-bridge"
    assert stack_of("pytorch/torchtitan", "FSDP eager") == "torchtitan-eager"


def test_rows_of_any_source(rows, tmp_path):
    """By a column, by a flag, or left out with what to do about it."""
    one = rows["TR-DGXC-004"]
    unknown = one | {"source": "my cluster"}
    file = write_rows(tmp_path / "own.csv", [unknown | {"stack": "torchtitan"}, unknown | {"stack": ""}])
    runs, reasons = training_runs(file)
    assert [run.job.stack.name for run in runs] == ["torchtitan"]
    assert reasons == ["no software stack known for the source 'my cluster'; name one in a stack column or by --stack"]
    runs, reasons = training_runs(file, "megatron-core")
    assert [run.job.stack.name for run in runs] == ["megatron-core"] * 2
    assert runs[1].plan.chips == run_of(published_run(one, 2)).plan.chips
    found = validate(file, "megatron-core").as_json()
    assert found["scored"] == 2
    assert set(found["by_stack"]) == {f"megatron-core {runs[0].job.slice.chip.name}"}
    with pytest.raises(InputError, match="did you mean"):
        training_runs(file, "megatron-cor")


def test_bad_files(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("id,chip\n1,h100\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no column"):
        validate(path)
    header = FILE.read_text(encoding="utf-8").splitlines()[0]
    path.write_text(header + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="no rows"):
        validate(path)


def test_order_and_regret():
    mixed = weigh([(1.0, 1.2), (1.5, 1.1), (2.0, 2.1)])
    assert (mixed.agreeing, mixed.opposing, mixed.regret) == (2, 1, pytest.approx(0.5))
    repeats = weigh([(1.0, 1.0), (1.01, 0.9)])
    assert (repeats.agreeing, repeats.opposing) == (0, 0)
    found = summary([mixed, repeats])
    assert (found["groups"], found["pairs"], found["tau"]) == (2, 3, pytest.approx(1 / 3))
    assert found["regret_max"] == pytest.approx(0.5)


def test_choices_among_measured_alternatives(runs, rows, tmp_path):
    """The same job split in another way, measured slower and faster than the first: one group, one pair."""
    one = rows["TR-DGXC-004"]
    other = one | {"id": "other", "micro_batch": "2", "step_s": str(float(one["step_s"]) * 1.2)}
    alike = training_runs(write_rows(tmp_path / "two.csv", [one, other]))[0]
    agreeing = training_choices(zip(alike, (1.0, 1.1), strict=True))
    assert [(found.agreeing, found.opposing, found.regret) for found in agreeing] == [(1, 0, 0.0)]
    opposing = training_choices(zip(alike, (1.1, 1.0), strict=True))
    assert [(found.agreeing, found.opposing, found.regret) for found in opposing] == [(0, 1, pytest.approx(0.2))]
    assert training_choices([(run, 1.0) for run in runs.values() if run.row.id.startswith("TR-SC21")]) == []
    found = validate(tmp_path / "two.csv").as_json()["choices"]
    assert (found["groups"], found["pairs"]) == (1, 1)
    seconds = [first_number(predict(run)[1].seconds) for run in alike]
    assert found["tau"] == (1.0 if seconds[0] < seconds[1] else -1.0)
