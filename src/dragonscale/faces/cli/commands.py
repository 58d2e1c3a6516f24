"""The commands: what each is asked, what answers it, how it is told in help. Nothing is loaded before it is needed."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dragonscale.app.questions.flag import Field, fields_of
from dragonscale.app.questions.output import ALWAYS, Output
from dragonscale.app.questions.validate import KINDS


@dataclass(frozen=True)
class Command:
    """A command: where its question and the function that answers it are, as `module:name`.

    The function takes the question and a `Listener` and returns a `Record`. `outputs` are the flags of `Output`
    that it takes beyond those of every command; `charts` what `--chart` offers.
    """

    name: str
    about: str
    question: str
    answer: str
    group: str
    examples: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    charts: tuple[str, ...] = ()
    page: str = ""
    """The page of the docs."""
    tool: bool = True
    """Whether agents may call it (`dscale mcp`): not what runs for long, or is there for its files."""
    dialogue: str = ""
    """The module that talks with a person at a terminal (`wants_dialogue`, `dialogue`), where the command does."""

    def asked_by(self) -> type:
        return _named(self.question)

    def answered_by(self) -> Any:
        return _named(self.answer)

    def fields(self) -> tuple[Field[Any, Any], ...]:
        """Every flag: those of the question, and how the answer is given."""
        taken = (*self.outputs, *ALWAYS)
        shown = [field for field in fields_of(Output) if field.name in taken]
        if self.charts:
            shown = [
                field.but(about=_drawn(self.charts), offers=self.charts) if field.name == "chart" else field
                for field in shown
            ]
        return (*fields_of(self.asked_by()), *shown)


def _drawn(charts: tuple[str, ...]) -> str:
    return f"What --plot draws: {', '.join(charts)}."


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


PLANNING, PHYSICS, PROOF, FACTS = "Plan", "Understand", "Prove and run", "Look up"

_LOGS = {
    "training": ("dscale validate training megatron.log --plan plan.toml",),
    "serving": ('dscale validate serving result.json --plan "vllm serve meta-llama/Meta-Llama-3-70B -tp 8" --on h100',),
}
_SCORED = {"training": "TrainingScoreQuestion", "serving": "ServingScoreQuestion"}

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            "train",
            "How to split a training run over chips, how long a step takes, what bounds it, what it costs.",
            "dragonscale.app.questions.train:TrainQuestion",
            "dragonscale.app.train.ask:ask",
            PLANNING,
            (
                "dscale train llama3-70b --on h100:512 --batch 4M --seq 8192 --tokens 15T",
                'dscale train llama3-70b --on h100:512 --batch 4M --seq 8192 --plan "tp8 pp4 dp16" --measured 8.2s',
                "dscale train llama3-8b --on any --batch 1M --seq 8k --tokens 1T --deadline 30d",
            ),
            ("explain", "verify", "save", "timeline", "plot", "chart", "theme"),
            ("time", "memory", "mesh", "roofline", "scaling", "answer"),
            "training",
        ),
        Command(
            "serve",
            "How to serve a model: which chips, sharding, batch and engine; how fast tokens are, what they cost.",
            "dragonscale.app.questions.serve:ServeQuestion",
            "dragonscale.app.serve.ask:ask",
            PLANNING,
            (
                "dscale serve llama3-70b --on h100:8 --prompt 2048 --output 512 --ttft 500ms --tpot 30ms --rate 20/s",
                "dscale serve deepseek-v3 --on h200:16 --tpot 40ms --accept 0.7 --disaggregate",
                "dscale serve llama3-8b --on any --tpot 20ms --save plan.toml",
            ),
            ("explain", "verify", "save", "timeline", "plot", "chart", "theme"),
            ("frontier", "decode", "prefill", "memory", "mesh"),
            "serving",
        ),
        Command(
            "simulate",
            "What a fleet does under traffic: percentiles of TTFT and TPOT, goodput, what it holds, what to change.",
            "dragonscale.app.questions.simulate:SimulateQuestion",
            "dragonscale.app.simulate.ask:ask",
            PLANNING,
            (
                "dscale simulate llama3-70b --on h100:8 --replicas 4 --rate 12/s --ttft 500ms --tpot 40ms",
                "dscale simulate plan.toml --trace azure.csv --speed 2",
                "dscale simulate llama3-8b --on h100:1 --rate 40/s --autoscale 2..16,target=24,startup=90s",
            ),
            ("explain", "timeline", "plot", "chart", "theme"),
            ("latency", "occupancy"),
            "simulation",
        ),
        Command(
            "verify",
            "Does the real compiler agree with the plan? Memory, FLOPs and every collective, planned and compiled.",
            "dragonscale.app.questions.verify:VerifyQuestion",
            "dragonscale.app.verify.ask:ask",
            PROOF,
            (
                "dscale verify fsdp=8,remat=block --model llama3-8b --on h100:8 --batch 16seq --seq 8192",
                "dscale verify plan.toml --mode full --html report.html",
                "dscale verify tensor=8 --program decode --model llama3-70b --on v5e:2x4 --batch 64 --seq 2560",
            ),
            ("explain", "plot", "chart", "theme", "html"),
            ("compiled",),
            "verify",
            tool=False,
        ),
        Command(
            "profile",
            "Where the time of a recorded step went: a JAX, PyTorch or Nsight profile, beside the plan.",
            "dragonscale.app.questions.profile:ProfileQuestion",
            "dragonscale.app.profile.ask:ask",
            PROOF,
            (
                "dscale profile profile.xplane.pb",
                "dscale profile trace.json.gz --plan plan.toml --html profile.html",
                "dscale profile trace.json.gz --plan fsdp=8 --model llama3-8b --on h100:8 --batch 64seq --seq 4096",
            ),
            ("explain", "timeline", "table", "html"),
            page="profile",
        ),
        Command(
            "calibrate",
            "The kernels of the device at hand, measured and fitted: a profile that every planner command takes.",
            "dragonscale.app.questions.calibrate:CalibrateQuestion",
            "dragonscale.app.calibrate.ask:ask",
            PROOF,
            (
                "dscale calibrate --minutes 5 --out mine.toml",
                "dscale calibrate --check mine.toml",
                "dscale calibrate --dry-run --only matmul,attention",
            ),
            ("explain",),
            page="calibrate",
            tool=False,
        ),
        Command(
            "sweep",
            "Many questions at once, on all cores or a Ray cluster: resumable, one bad entry never stops the rest.",
            "dragonscale.app.questions.sweep:SweepQuestion",
            "dragonscale.app.sweep.ask:ask",
            PLANNING,
            (
                "dscale sweep grid.toml --out results.jsonl --table rows.csv",
                "dscale sweep grid.toml --out results.jsonl --retry --jobs 8",
                "dscale sweep grid.toml --plot sweep.svg --columns mfu,batch,seq",
            ),
            ("explain", "plot", "chart", "theme", "table"),
            ("auto", "lines", "heat", "bars"),
            "howto/sweep-on-a-cluster",
            tool=False,
        ),
        *(
            Command(
                f"validate {kind}",
                about,
                f"dragonscale.app.questions.validate:{_SCORED.get(kind, 'ScoreQuestion')}",
                f"dragonscale.app.validate.ask:ask_{kind}",
                PROOF,
                (
                    f"dscale validate {kind} measured.csv --out scores.csv",
                    f"dscale validate {kind} measured.csv --plot scatter.svg",
                    *_LOGS.get(kind, ()),
                ),
                ("explain", "plot", "chart", "theme", "out"),
                ("scatter",),
                f"validation-{kind}" if kind != "memory" else "validation-training",
                tool=kind in _LOGS,
            )
            for kind, about in KINDS.items()
        ),
        Command(
            "run train",
            "Train: real steps of the plan in JAX on the devices there are, beside what it promised.",
            "dragonscale.app.questions.run:RunTrainQuestion",
            "dragonscale.app.run.ask:ask_train",
            PROOF,
            (
                "dscale run train plan.toml --data 'corpus/*.bin' --steps 1000 --checkpoints runs/first",
                "dscale run train fsdp=8 --model llama3.2-1b --data corpus.bin --steps 20 --batch 8 --seq 512 --cpu 8",
                "dscale run train plan.toml --data 'corpus/*.bin' --steps 20 --profile 3 --html profile.html",
            ),
            ("explain", "timeline", "html"),
            page="run",
            tool=False,
        ),
        Command(
            "run serve",
            "Serve: the plan as an OpenAI-compatible server on the devices there are, beside what it promised.",
            "dragonscale.app.questions.run:RunServeQuestion",
            "dragonscale.app.run.serve:ask_serve",
            PROOF,
            (
                "dscale run serve plan.toml --weights Meta-Llama-3-8B",
                "dscale run serve tp1 --model llama3-8b --random --on h200:1 --length 2048 --record served.jsonl",
                "dscale run serve ./Qwen3-0.6B --cpu 1 --port 8080 --draft ngram",
            ),
            ("explain",),
            page="run-serve",
            tool=False,
        ),
        Command(
            "export",
            "A plan as the files and commands of the software that runs it, and of what launches it.",
            "dragonscale.app.questions.export:ExportQuestion",
            "dragonscale.app.export.ask:ask",
            PROOF,
            (
                "dscale export plan.toml --to megatron,slurm --out run",
                "dscale export serving.toml --to vllm",
                "dscale export tp8 --to sglang --model llama3-70b --on h100:8 --batch 64 --prompt 2k --output 512",
            ),
            page="exports",
        ),
        Command(
            "import",
            "The config or command that someone runs today, read as a plan.",
            "dragonscale.app.questions.export:ImportQuestion",
            "dragonscale.app.imported.ask:ask",
            PROOF,
            (
                'dscale import "vllm serve meta-llama/Meta-Llama-3-70B -tp 8 --max-num-seqs 256" --on h100',
                "dscale import train.sh --on h100 --save plan.toml",
            ),
            ("explain", "save"),
            page="exports",
        ),
        Command(
            "models",
            "What a model weighs: parameters, FLOPs, KV cache and activations, by part; or all presets.",
            "dragonscale.app.questions.facts:ModelsQuestion",
            "dragonscale.app.models.ask:ask",
            FACTS,
            (
                "dscale models",
                "dscale models llama3-70b --seq 32k --kv-dtype fp8",
                "dscale models my/config.json --as llama --assume head_dim=128",
            ),
            ("plot", "chart", "theme"),
            ("parameters", "flops"),
            "models",
        ),
        Command(
            "compare",
            "Plans, slices, stacks or engines side by side, difference by difference.",
            "dragonscale.app.questions.compare:CompareQuestion",
            "dragonscale.app.compare.ask:ask",
            PLANNING,
            (
                'dscale compare "tp8 pp4 dp16" fsdp512 best --model llama3-70b --on h100:512 --batch 4M --seq 8192',
                "dscale compare --model llama3-8b --on h100:64,v5p:4x4x4 --batch 4M --seq 8192",
                "dscale compare --model llama3-70b --on h100:8 --prompt 2048 --output 512 --engine vllm,sglang",
            ),
            ("explain", "plot", "chart", "theme"),
            ("time", "memory"),
            "compare",
        ),
        Command(
            "estimate",
            "The back of the envelope: FLOPs, days, dollars, bytes and floors, each with its formula.",
            "dragonscale.app.questions.estimate:EstimateQuestion",
            "dragonscale.app.estimate.ask:ask",
            PHYSICS,
            (
                "dscale estimate llama3-70b --on h100:1024 --tokens 15T --mfu 40%",
                "dscale estimate llama3-70b --on h100:8 --batch 64 --context 8192 --weights fp8",
                "dscale estimate --params 70e9 --tokens 15T --on h100:1024",
            ),
            page="estimate",
        ),
        Command(
            "learn",
            "The course: problems asked with fresh numbers, answers judged, hints and worked solutions.",
            "dragonscale.app.questions.learn:LearnQuestion",
            "dragonscale.app.learn.ask:ask",
            PHYSICS,
            (
                "dscale learn",
                "dscale learn rooflines",
                "dscale learn rooflines.time-of-flops --seed 7 --answer 1.1ms",
            ),
            ("explain",),
            page="course/index",
            tool=False,
            dialogue="dragonscale.faces.cli.learning",
        ),
        Command(
            "roofline",
            "How long an operation takes at best on one chip, what bounds it, and where that changes.",
            "dragonscale.app.questions.operations:RooflineQuestion",
            "dragonscale.app.roofline.ask:ask",
            PHYSICS,
            (
                'dscale roofline "bf16[B,8192] @ bf16[8192,28672]" --on v5e',
                'dscale roofline "attention(B=8, T=4096, N=64, K=8, H=128, causal)" --on h100',
                'dscale roofline "2e12FLOP 3GB" --on h100',
            ),
            ("plot", "chart", "theme"),
            ("roofline",),
            "rooflines",
        ),
        Command(
            "shard",
            "Which collectives a sharded einsum needs, forward and backward, and what they cost.",
            "dragonscale.app.questions.operations:ShardQuestion",
            "dragonscale.app.shard.ask:ask",
            PHYSICS,
            (
                'dscale shard "A[I_X, J] @ B[J_X, K] -> C[I, K]" --mesh X=4,Y=8',
                'dscale shard "In[B, D_X] · W[D_X, F_Y] -> Out[B, F_Y]" --on v5e:4x8 --sizes B=64,D=8192,F=28672',
            ),
            ("plot", "chart", "theme"),
            ("bars", "mesh"),
            "sharding",
        ),
        Command(
            "collective",
            "How long a collective takes, and whether its hops or its bytes decide.",
            "dragonscale.app.questions.operations:CollectiveQuestion",
            "dragonscale.app.collective.ask:ask",
            PHYSICS,
            (
                "dscale collective all_gather 34MB --axis X --on v5e:8x16",
                "dscale collective all_reduce 400MB --on h100:64 --in-network",
                "dscale collective send 9MB --on v5e:4x4 --from 0,0 --to 3,3",
            ),
            ("plot", "chart", "theme"),
            ("size",),
            "collectives",
        ),
        Command(
            "explain train",
            "Where a step's time, bytes, FLOPs and memory come from, and where it becomes bound by the network.",
            "dragonscale.app.questions.explain:ExplainTrainQuestion",
            "dragonscale.app.explain.ask:ask_train",
            PHYSICS,
            (
                "dscale explain train fsdp --model llama3-70b --on v5p:8x16x16 --batch 4Mi --seq 2048",
                (
                    'dscale explain train "tp8 pp4 dp16" --model llama3-70b --on h100:512 --line "mlp matmuls" '
                    "--solve batch"
                ),
            ),
            ("plot", "chart", "theme"),
            ("times",),
            "training",
        ),
        Command(
            "explain serve",
            "Where an iteration's time and memory, the time per token and the limits of serving come from.",
            "dragonscale.app.questions.explain:ExplainServeQuestion",
            "dragonscale.app.explain.ask:ask_serve",
            PHYSICS,
            ("dscale explain serve llama3-8b --on h100 --prompt 2048 --output 512 --solve context",),
            ("plot", "chart", "theme"),
            ("times",),
            "serving",
        ),
        Command(
            "explain roofline",
            "Why an operation takes as long as it does.",
            "dragonscale.app.questions.explain:ExplainRooflineQuestion",
            "dragonscale.app.explain.ask:ask_roofline",
            PHYSICS,
            ('dscale explain roofline "bf16[B,D] @ bf16[D,F]" --on v5e',),
            ("plot", "chart", "theme"),
            ("times",),
            "rooflines",
        ),
        Command(
            "explain collective",
            "Why a collective takes as long as it does.",
            "dragonscale.app.questions.explain:ExplainCollectiveQuestion",
            "dragonscale.app.explain.ask:ask_collective",
            PHYSICS,
            ("dscale explain collective all_to_all 64MB --axis XY --on v5e:16x16",),
            ("plot", "chart", "theme"),
            ("times",),
            "collectives",
        ),
        Command(
            "explain shard",
            "Which bytes a sharded einsum moves, and why each resource takes as long as it does.",
            "dragonscale.app.questions.explain:ExplainShardQuestion",
            "dragonscale.app.explain.ask:ask_shard",
            PHYSICS,
            ('dscale explain shard "In[B, D_Y] · W[D, F_Y] -> Out[B, F_Y]" --on v5e --mesh Y=4',),
            ("plot", "chart", "theme"),
            ("times",),
            "sharding",
        ),
        Command(
            "explain model",
            "Where a model's parameters and FLOPs come from.",
            "dragonscale.app.questions.explain:ExplainModelQuestion",
            "dragonscale.app.explain.ask:ask_model",
            PHYSICS,
            ("dscale explain model llama3-8b --seq 8192",),
            ("plot", "chart", "theme"),
            ("times",),
            "models",
        ),
        Command(
            "hlo",
            (
                "A shape, an instruction or a program of XLA's HLO: layouts, FLOPs and bytes of each op, "
                "collectives, loops."
            ),
            "dragonscale.app.questions.hlo:HloQuestion",
            "dragonscale.app.hlo.ask:ask",
            PHYSICS,
            (
                'dscale hlo "bf16[4,8]{1,0:T(2,4)(2,1)}"',
                'dscale hlo "%d = bf16[64,512] dot(bf16[64,256] %x, bf16[256,512] %w), lhs_contracting_dims={1}, '
                'rhs_contracting_dims={0}" --on v5e',
                "dscale hlo example --on v5p",
            ),
            page="hlo",
        ),
        Command(
            "calc",
            "A calculator with units that knows chips, slices, models and closed forms by name, and solves equations.",
            "dragonscale.app.questions.facts:CalcQuestion",
            "dragonscale.app.calc.ask:ask",
            FACTS,
            (
                'dscale calc "1e12 FLOP / v6e.bf16"',
                'dscale calc "llama3-70b.bytes / v5e.hbm_bandwidth" --to ms',
                'dscale calc "2*B*D*F/v5e.bf16 = 2*D*F/v5e.hbm_bandwidth"',
            ),
            page="calc",
        ),
        Command(
            "chips",
            "What is known of each chip, and from where; what a slice of them is.",
            "dragonscale.app.questions.facts:ChipsQuestion",
            "dragonscale.app.chips.ask:ask",
            FACTS,
            ("dscale chips", "dscale chips h100", "dscale chips v5e:8x16"),
            ("plot", "chart", "theme"),
            ("roofs", "flops", "hbm", "bandwidth"),
            "chips",
        ),
        Command(
            "web",
            "The same in a browser: a page with every answer drawn, each number with its derivation.",
            "dragonscale.app.questions.web:WebQuestion",
            "dragonscale.web.server.ask:ask",
            PLANNING,
            ("dscale web", "dscale web --port 9000 --no-browser"),
            page="web",
            tool=False,
        ),
        Command(
            "mcp",
            "The planner as tools for agents: a server of the Model Context Protocol on stdin and stdout.",
            "dragonscale.app.questions.mcp:McpQuestion",
            "dragonscale.faces.cli.mcp.ask:ask",
            FACTS,
            ("dscale mcp",),
            page="agents",
            tool=False,
        ),
        Command(
            "completion",
            "A static script that completes commands, flags and names in your shell; make it anew after an update.",
            "dragonscale.app.questions.completion:CompletionQuestion",
            "dragonscale.faces.cli.completion.ask:ask",
            FACTS,
            (
                "dscale completion bash",
                "dscale completion zsh",
                "dscale completion fish",
            ),
            page="terminal",
            tool=False,
        ),
    )
}
