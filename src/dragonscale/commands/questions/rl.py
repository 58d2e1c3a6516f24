"""What `dscale rl` and `ds.rl` can be asked."""

from dragonscale.commands.questions import flag, shared
from dragonscale.commands.questions.flag import (
    FILES,
    PLAN,
    SOFTWARE,
    Question,
    Real,
    Several,
    Switch,
    Text,
    Thing,
    Whole,
)


class RlQuestion(Question):
    """A step of reinforcement learning: the model, the chips, the prompts and the answers to each."""

    model: Thing = shared.MODEL.but(default="", needed=True)
    on: Thing = shared.ON.but(default="", needed=True)
    algorithm: Text = Text("grpo", "NAME", offers=("grpo", "dapo", "ppo", "rloo", "reinforce"))
    """grpo, dapo (no reference), ppo (with a critic), rloo or reinforce."""
    prompts: Whole = shared.PROMPTS
    samples: Whole = Whole(16, "N", limits=(1, 100_000), also=("--group", "--num-generations"))
    """Answers to each prompt."""
    prompt: flag.Length = flag.Length.of(shared.PROMPT, default="512")
    """Tokens of a prompt, on average."""
    output: flag.Length = flag.Length.of(shared.OUTPUT, default="4096")
    """Tokens at which an answer is cut off."""
    mean_output: flag.Length = flag.Length("", "TOKENS")
    """Tokens of an answer on average; half of --output without it."""
    spread: Real = Real(None, "SIGMA", limits=(0.01, 3.0))
    """How much lengths of answers differ: the standard deviation of their logarithm (0.75 without it)."""
    lengths: Text = shared.LENGTHS.but()
    """A file of measured lengths of answers, one to a line, or a result of vllm bench, GuideLLM, AIPerf, inference-perf
    or ShareGPT, in place of --mean-output and --spread."""
    updates: Whole = Whole(1, "N", limits=(1, 10_000))
    """Updates of the weights in a step, each on its part of the answers."""
    oversample: Real = Real(1.0, "TIMES", limits=(1.0, 100.0))
    """Answers generated for each that is trained on (3 in DAPO's dynamic sampling of NeMo-RL and verl)."""
    reward: Thing = Thing("", "MODEL", offers="models")
    """A reward model; a rule that takes no time without it."""
    reward_s: flag.Duration = flag.Duration("", "TIME")
    """What rewards take after the last answer (2s): a sandbox, a judge behind an API."""
    turns: Whole = Whole(1, "N", limits=(1, 1000))
    """Turns of an answer, with a tool call between them."""
    tool_s: flag.Duration = flag.Duration("", "TIME")
    """What a tool call takes on average (2s), while the answer makes no tokens."""
    reference: Switch = Switch(None)
    """Whether a reference's log-probabilities are read for a KL term; by --algorithm without it."""
    stack: Text = shared.STACK.but(
        offers=("auto", "nemo-rl", "verl", "openrlhf", "slime", "areal", "trl", "skyrl", "swift", "unsloth", "generic")
    )
    """The framework: nemo-rl, verl, openrlhf, slime, areal, trl, skyrl, swift, unsloth, generic; auto: the best of
    nemo-rl and verl."""
    method: Text = shared.METHOD.but(offers=("full", "lora", "qlora"))
    """What is trained of the policy: every weight (full, the default), or lora or qlora adapters, which need no
    reference model."""
    lora_rank: Whole = shared.LORA_RANK
    lora_targets: Text = shared.LORA_TARGETS
    frozen: Text = shared.FROZEN
    memory_fraction: Real = shared.MEMORY_FRACTION.but(also=("--gpu-memory-utilization",))
    """The part of a chip's memory that the engine takes (0.6); by --stack without it."""
    host_memory: flag.Text = Text("", "BYTES", flag.WHERE)
    """Memory of each host (96GB); what hosts of such chips usually have without it."""
    rollout_dtype: Text = Text("bf16", "DTYPE", SOFTWARE, offers=("bf16", "fp8"))
    """Format of the engine's weights and matmuls: bf16 or fp8."""
    plan: Thing = shared.PLAN.but(value="CONFIG")
    """The command or config of verl, NeMo-RL, OpenRLHF, slime or TRL (GRPO), judged as it is; flags come before it."""
    mode: Text = Text("", "MODE", PLAN, offers=("colocated", "one-step-off", "async"))
    """Only this: colocated (trainer and engine on the same chips in turns), one-step-off or async (two pools)."""
    staleness: Real = Real(None, "STEPS", PLAN, limits=(0.0, 16.0))
    """Steps that answers may be ahead of the trainer in an asynchronous run (0.3, 1, 4); 1 without it."""
    ratio: Real = Real(None, "PART", PLAN, limits=(0.01, 0.99))
    """The part of the chips that generates, of two pools; without it a quarter, a third, half and three quarters."""
    rollout_on: Thing = shared.ON.but(default="", group=PLAN)
    """Generate on other chips than --on, which train (h20:64): two pools."""
    steps: Whole = shared.STEPS.but(limits=(1, 10_000))
    """Simulate the best way for so many steps, event by event: queue, staleness, failures; --timeline writes it."""
    seed: Whole = shared.SEED
    mtbf: flag.Duration = flag.Duration.of(shared.MTBF)
    """Time between failures of a replica of the engine in a simulated run; none fails without it."""
    engines: Text = Text("", "STEP:N,…", PLAN)
    """Replicas of the engine from a step of the simulated run on (50:12,100:8)."""
    top: Whole = shared.TOP.but(limits=(1, 100))
    """How many of the best ways to show."""
    to: Several = shared.TO.but(value="NAME", group=FILES, offers=("verl", "nemo-rl", "openrlhf", "slime", "trl"))
    """Write the best way as the command of a framework: verl, nemo-rl, openrlhf, slime or trl."""
    out: Text = shared.OUT.but(value="FOLDER")
    """The folder that --to writes to."""
    price: Text = shared.PRICE
    pricing: Text = shared.PRICING
    owned: Text = shared.OWNED
    set: Several = shared.SET
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
