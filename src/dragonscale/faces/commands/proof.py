"""Commands that hold a plan against compilers, devices and other software, and run it.

>>> import dragonscale as ds

>>> found = ds.verify("tensor=2", "llama3.2-1b", on="h100:2", batch=8, seq=512, program="decode")  # doctest: +SKIP
>>> found  # doctest: +SKIP
<Verification: llama3.2-1b on h100:2: a decode step of tensor=2: agrees>
>>> found.peak.planned, found.peak.compiled, found.exit_code  # doctest: +SKIP

>>> found = ds.calibrate(minutes=5, install=True)  # doctest: +SKIP
>>> ds.calibrate(check="own").exit_code  # doctest: +SKIP
0

>>> made = ds.export("tp2", to="vllm", model="llama3-8b", on="h100:2", batch=32, prompt=1024, output=256)
>>> [*made.files]
['vllm.sh']
>>> ds.import_plan(made.text()).plan["tensor"]
2

>>> ds.validate("collectives", "tests/evidence/data/collectives.csv")  # doctest: +SKIP
<Validation: collectives: 7 of 21 rows scored, median error 2.7%>

>>> found = ds.profile(
...     "profile.xplane.pb", plan="fsdp=8", model="llama3-8b", on="h100:8", batch="64seq", seq=4096
... )  # doctest: +SKIP
>>> found.step_s, found.parts, found.savings[0]  # doctest: +SKIP

>>> ds.hlo("f32[3,5]{1,0:T(2,2)}").offsets
[[0, 1, 4, 5, 8], [2, 3, 6, 7, 10], [12, 13, 16, 17, 20]]
>>> op = ds.hlo(
...     "%d = f32[16,128] dot(f32[256,16] %x, f32[128,256] %y), lhs_contracting_dims={0}, rhs_contracting_dims={1}"
... )
>>> op.kind, op.matmul_flops
('matmul', 1048576.0)
"""

from dragonscale.commands.questions.export import ExportQuestion, ImportQuestion
from dragonscale.commands.questions.operations import HloQuestion
from dragonscale.commands.questions.run import RunRlQuestion, RunServeQuestion, RunTrainQuestion
from dragonscale.commands.questions.validate import (
    RlScoreQuestion,
    ScoreQuestion,
    ServingScoreQuestion,
    TrainingScoreQuestion,
    ValidateQuestion,
)
from dragonscale.commands.questions.verify import CalibrateQuestion, ProfileQuestion, VerifyQuestion
from dragonscale.faces.command import PROOF, command


@command(VerifyQuestion, PROOF, "verify", ("explain", "html"), ("compiled",), tool=False)
def verify():
    """Does the real compiler agree with the plan? Memory, FLOPs and every collective, planned and compiled.

    dscale verify fsdp=8,remat=block --model llama3-8b --on h100:8 --batch 16seq --seq 8192
    dscale verify plan.toml --passes full --html report.html
    dscale verify tensor=8 --program decode --model llama3-70b --on v5e:2x4 --batch 64 --seq 2560

    Does the real compiler agree with a plan? Memory, FLOPs and every collective, planned and compiled.

    Needs the compiler (the extra `gpu-compiler` or `tpu`), but no accelerator. Returns a
    `Verification`: `.verdict`, `.peak`, `.flops`, `.axes`; `.to_frame()` has a row for each number compared.
    """
    from dragonscale.commands.verify.ask_verify import ask

    return ask


@command(ProfileQuestion, PROOF, "profile", ("explain", "timeline", "table", "html"))
def profile():
    """Where the time of a recorded step went: a JAX, PyTorch or Nsight profile, beside the plan.

    dscale profile profile.xplane.pb
    dscale profile trace.json.gz --plan plan.toml --html profile.html
    dscale profile trace.json.gz --plan fsdp=8 --model llama3-8b --on h100:8 --batch 64seq --seq 4096

    Where did the time of a step go? A profile of JAX, PyTorch or Nsight Systems read, beside its plan where one is
    given.

    Returns a `ProfileReport`: `.step_s`, `.parts`, `.groups`, `.ops`, `.communication`, `.gaps`, `.savings`;
    `.to_frame()` has a row for each group of ops. Seconds, FLOPs and bytes are those of one step on one device.
    """
    from dragonscale.commands.profile.ask_profile import ask

    return ask


@command(HloQuestion, PROOF, "hlo")
def hlo():
    """A shape, an instruction or a program of XLA's HLO: layouts, FLOPs and bytes of each op, collectives, loops.

    dscale hlo "bf16[4,8]{1,0:T(2,4)(2,1)}"
    dscale hlo "%d = bf16[64,512] dot(bf16[64,256] %x, bf16[256,512] %w), lhs_contracting_dims={1},
        rhs_contracting_dims={0}" --on v5e
    dscale hlo example --on v5p

    A shape, an instruction or a program in XLA's HLO: layouts and tiles, FLOPs and bytes of each op, collectives by
    group, loops, shapes back to global, and on a chip the time of each op at best.
    """
    from dragonscale.commands.hlo.ask_hlo import ask

    return ask


@command(CalibrateQuestion, PROOF, "calibrate", ("explain",), tool=False)
def calibrate():
    """The kernels of the device at hand, measured and fitted: a profile that every planner command takes.

    dscale calibrate --minutes 5 --out mine.toml
    dscale calibrate --check mine.toml
    dscale calibrate --dry-run --only matmul,attention

    Time matmuls, memory, attention, decode attention and experts on the device at hand, in JAX or PyTorch, and fit
    a profile.

    Returns a `CalibrationReport`: `.tables` with their errors on kernels and shapes left out, `.profile` (the file, for
    `profile=` of `ds.train`, `ds.serve` …); with `check`, `.checked_tables` and an `.exit_code`.
    """
    from dragonscale.commands.calibrate.ask_calibrate import ask

    return ask


@command(TrainingScoreQuestion, PROOF, "validation-training", ("explain", "out"), ("scatter",))
def validate_training():
    """Score expected step times and memory of training runs against measured ones, or against the log of your own.

    dscale validate training measured.csv --out scores.csv
    dscale validate training measured.csv --plot scatter.svg
    dscale validate training megatron.log --plan plan.toml
    """
    from dragonscale.commands.validate.ask_validate import ask_training

    return ask_training


@command(ScoreQuestion, PROOF, "validation-inference", ("explain", "out"), ("scatter",), tool=False)
def validate_inference():
    """Score expected latencies and throughputs of inference runs against measured ones.

    dscale validate inference measured.csv --out scores.csv
    dscale validate inference measured.csv --plot scatter.svg
    """
    from dragonscale.commands.validate.ask_validate import ask_inference

    return ask_inference


@command(ServingScoreQuestion, PROOF, "validation-serving", ("explain", "out"), ("scatter",))
def validate_serving():
    """Score simulated times to the first token and between tokens against measured ones, or against your load test.

    dscale validate serving measured.csv --out scores.csv
    dscale validate serving measured.csv --plot scatter.svg
    dscale validate serving result.json --plan "vllm serve meta-llama/Meta-Llama-3-70B -tp 8" --on h100
    """
    from dragonscale.commands.validate.ask_validate import ask_serving

    return ask_serving


@command(ScoreQuestion, PROOF, "validation-collectives", ("explain", "out"), ("scatter",), tool=False)
def validate_collectives():
    """Score expected times of collectives against measured ones.

    dscale validate collectives measured.csv --out scores.csv
    dscale validate collectives measured.csv --plot scatter.svg
    """
    from dragonscale.commands.validate.ask_validate import ask_collectives

    return ask_collectives


@command(ScoreQuestion, PROOF, "validation-kernels", ("explain", "out"), ("scatter",), tool=False)
def validate_kernels():
    """Score expected times of single kernels against measured ones.

    dscale validate kernels measured.csv --out scores.csv
    dscale validate kernels measured.csv --plot scatter.svg
    """
    from dragonscale.commands.validate.ask_validate import ask_kernels

    return ask_kernels


@command(ScoreQuestion, PROOF, "validation-training", ("explain", "out"), ("scatter",), tool=False)
def validate_memory():
    """Score expected peaks of memory, and whether runs fit, against measured ones.

    dscale validate memory measured.csv --out scores.csv
    dscale validate memory measured.csv --plot scatter.svg
    """
    from dragonscale.commands.validate.ask_validate import ask_memory

    return ask_memory


@command(ScoreQuestion, PROOF, "validation-training", ("explain", "out"), ("scatter",), tool=False)
def validate_finetune():
    """Score expected steps of full, LoRA and QLoRA fine-tuning against measured ones.

    dscale validate finetune measured.csv --out scores.csv
    dscale validate finetune measured.csv --plot scatter.svg
    """
    from dragonscale.commands.validate.ask_validate import ask_finetune

    return ask_finetune


@command(RlScoreQuestion, PROOF, "reinforcement-learning", ("explain", "out"), ("scatter",), tool=False)
def validate_rl():
    """Score expected steps and weight transfers of reinforcement learning against measured ones, or your own log.

    dscale validate rl measured.csv --out scores.csv
    dscale validate rl measured.csv --plot scatter.svg
    dscale validate rl verl.log --plan run_qwen3-8b.sh --on h100
    """
    from dragonscale.commands.validate.ask_validate import ask_rl

    return ask_rl


@command(ValidateQuestion, PROOF, "validation-training", ("explain", "out"), ("scatter",), tool=False)
def validate():
    """Score predictions against measured runs in a file, or a plan against the log of your own run.

    Returns a `Validation`: `.to_dict()` is what `--json` prints, `.to_frame()` has a row for each one scored,
    `.plot()` draws predicted against measured. Of the log of one run, with its `plan`, a `RunScore`: `.measures` has
    every number with its expectation and band.
    """
    from dragonscale.commands.validate.ask_validate import ask

    return ask


@command(RunTrainQuestion, PROOF, "run", ("explain", "timeline", "html"), tool=False)
def run_train():
    """Train: real steps of the plan in JAX on the devices there are, beside what it promised.

    dscale run train plan.toml --data 'corpus/*.bin' --steps 1000 --checkpoints runs/first
    dscale run train fsdp=8 --model llama3.2-1b --data corpus.bin --steps 20 --batch 8 --seq 512 --cpu 8
    dscale run train plan.toml --data 'corpus/*.bin' --steps 20 --profile-steps 3 --html profile.html
    """
    from dragonscale.commands.run.run_train import ask_train

    return ask_train


@command(RunServeQuestion, PROOF, "run", ("explain",), tool=False)
def run_serve():
    """Serve: the plan as an OpenAI-compatible server on the devices there are, beside what it promised.

    dscale run serve plan.toml --load-weights Meta-Llama-3-8B
    dscale run serve tp1 --model llama3-8b --random --on h200:1 --length 2048 --record served.jsonl
    dscale run serve ./Qwen3-0.6B --cpu 1 --port 8080 --draft ngram
    """
    from dragonscale.commands.run.run_serve import ask_serve

    return ask_serve


@command(RunRlQuestion, PROOF, "run", ("explain",), tool=False)
def run_rl():
    """Reinforcement learning: GRPO with a rule's rewards, trainer and engine in one process, beside what was planned.

    dscale run rl 'qwen2.5-1.5b?vocab_size=1024' --prompts 16 --samples 16 --prompt 64 --output 64 --steps 20
    dscale run rl config.json --cpu 1 --prompts 4 --samples 8 --prompt 4 --output 12 --rule sorted --updates 2
    """
    from dragonscale.commands.run.run_rl import ask_rl

    return ask_rl


@command(ExportQuestion, PROOF, "exports")
def export():
    """A plan as the files and commands of the software that runs it, and of what launches it.

    dscale export plan.toml --to megatron,slurm --out run
    dscale export serving.toml --to vllm
    dscale export tp8 --to sglang --model llama3-70b --on h100:8 --batch 64 --prompt 2k --output 512

    Returns an `ExportReport`: `.files` by name, `.differences` what the software cannot say, `.save(folder)` writes
    them.
    """
    from dragonscale.commands.export.ask_export import ask

    return ask


@command(ImportQuestion, PROOF, "exports", ("explain", "save"), name="import")
def import_plan():
    """The config or command that someone runs today, read as a plan.

    dscale import "vllm serve meta-llama/Meta-Llama-3-70B -tp 8 --max-num-seqs 256" --on h100
    dscale import train.sh --on h100 --save plan.toml

    Returns an `ImportReport`: `.plan`, `.model`, `.workload`; `.save("plan.toml")` writes a plan file, and
    `ds.train` and `ds.serve` take the config itself as their plan.
    """
    from dragonscale.commands.imported import ask

    return ask
