"""Commands that explain what happens on the chips.

>>> import dragonscale as ds

>>> found = ds.collective("all_gather", "34MB", on="v5e:8x16", axis="Y")
>>> round(found.lower_s * 1e6), found.regime, found.ring.hops
(354, 'bandwidth', 8.0)
>>> ds.collective("send", "9MB", on="v5e:4x4", from_chip="0,0", to_chip="3,3").paths
2

>>> found = ds.shard("A[I, J_X] @ B[J_X, K] -> C[I, K]", on="v5e:4x4", sizes={"I": 1024, "J": 8192, "K": 1024})
>>> [move.collective for move in found.best[0].collectives], found.best[0].bound_by
(['all_reduce'], 'network')
>>> [row.replicas for row in found.forward[0].arrays]
[4, 4, 16]

>>> run = ds.estimate(params=70e9, tokens="15T", on="v5p:16x20x28", mfu=0.4)
>>> run
<EstimateReport: a model on v5p:16x20x28: 70B parameters, 44.3d for the run>
>>> line = run.line("training FLOPs (6ND)")
>>> line.value, line.formula, line.numbers
(6.3e+24, '6*P*tokens', '6*7e10*1.5e13')
>>> ds.estimate("llama3-70b")["KV bytes a token"]
327680.0

>>> found = ds.roofline("bf16[B,8192] @ bf16[8192,28672]", on="v5e", sizes={"B": 64})
>>> found.bound_by, round(found.lower_s * 1e6), round(found.crossovers[0].value)
('hbm', 579, 250)
>>> ds.roofline("attention(B=8, T=1, S=8192, N=64, K=8, H=128)", on="h100").bound_by
'hbm'
>>> ds.roofline("1e15FLOP", on="v5e")
<RooflineReport: 1PFLOP in bf16 on v5e: 5.08s at best, bound by compute>

>>> ds.learn("rooflines").chapter
'rooflines'
"""

from dragonscale.commands.questions.explain import (
    ExplainCollectiveQuestion,
    ExplainModelQuestion,
    ExplainRooflineQuestion,
    ExplainServeQuestion,
    ExplainShardQuestion,
    ExplainTrainQuestion,
)
from dragonscale.commands.questions.facts import LearnQuestion
from dragonscale.commands.questions.operations import (
    CollectiveQuestion,
    EstimateQuestion,
    RooflineQuestion,
    ShardQuestion,
)
from dragonscale.faces.command import PHYSICS, command


@command(EstimateQuestion, PHYSICS, "estimate")
def estimate():
    """The back of the envelope: FLOPs, days, dollars, bytes and floors, each with its formula.

    dscale estimate llama3-70b --on h100:1024 --tokens 15T --mfu 40%
    dscale estimate llama3-70b --on h100:8 --batch 64 --context 8192 --weights fp8
    dscale estimate --params 70e9 --tokens 15T --on h100:1024

    FLOPs, days, dollars, bytes and floors of a model on the back of an envelope, each with its formula.

    Returns an `EstimateReport`: `.lines` are the quantities, `report["run time"]` is the value of one.

    >>> import dragonscale as ds
    >>> ds.estimate("llama3-8b", on="h100:8", batch=64, context=8192).to_frame()  # doctest: +SKIP
    """
    from dragonscale.commands.estimate.ask_estimate import ask

    return ask


@command(LearnQuestion, PHYSICS, "course/index", ("explain",), tool=False)
def learn():
    """The course: problems asked with fresh numbers, answers judged, hints and worked solutions.

    dscale learn
    dscale learn rooflines
    dscale learn rooflines.time-of-flops --seed 7 --answer 1.1ms

    The chapters of the course, the problems of one, or a problem: its question with the numbers of a seed, hints,
    the verdict on an answer, the worked solution.
    """
    from dragonscale.commands.learn import ask

    return ask


@command(RooflineQuestion, PHYSICS, "rooflines", charts=("roofline",))
def roofline():
    """How long an operation takes at best on one chip, what bounds it, and where that changes.

    dscale roofline "bf16[B,8192] @ bf16[8192,28672]" --on v5e
    dscale roofline "attention(B=8, T=4096, N=64, K=8, H=128, causal)" --on h100
    dscale roofline "2e12FLOP 3GB" --on h100

    Returns a `RooflineReport`: `.resources` with the time of each, `.lower_s` and `.upper_s`, `.bound_by`,
    `.crossovers`, and where a size is left open `.samples` over it.
    """
    from dragonscale.commands.roofline import ask

    return ask


@command(ShardQuestion, PHYSICS, "sharding", charts=("bars", "mesh"))
def shard():
    """Which collectives a sharded einsum needs, forward and backward, and what they cost.

    dscale shard "A[I_X, J] @ B[J_X, K] -> C[I, K]" --mesh X=4,Y=8
    dscale shard "In[B, D_X] · W[D_X, F_Y] -> Out[B, F_Y]" --on v5e:4x8 --sizes B=64,D=8192,F=28672

    Which collectives a sharded einsum, a chain of them or a reshard needs, and what they cost.

    Returns a `ShardReport`: `.forward` and `.backward` have for each einsum its arrays (local shapes, bytes,
    replicas) and the ways to do it, cheapest first; `.best` the cheapest way of each.
    """
    from dragonscale.commands.shard import ask

    return ask


@command(CollectiveQuestion, PHYSICS, "collectives", charts=("size",))
def collective():
    """How long a collective takes, and whether its hops or its bytes decide.

    dscale collective all_gather 34MB --axis X --on v5e:8x16
    dscale collective all_reduce 400MB --on h100:64 --in-network
    dscale collective send 9MB --on v5e:4x4 --from-chip 0,0 --to-chip 3,3

    How long a collective takes over mesh axes of a slice; or one message between its chips (`send`, `gather`).

    Returns a `CollectiveReport`: the bandwidth and latency terms, `.lower_s` (at best), `.book_s` (to first order),
    `.expected_s`, and what goes on in the ring or on the tiers of switches; or a `TransferReport`.
    """
    from dragonscale.commands.collective import ask

    return ask


@command(ExplainTrainQuestion, PHYSICS, "training", charts=("times",))
def explain_train():
    """Where a step's time, bytes, FLOPs and memory come from, and where it becomes bound by the network.

    dscale explain train fsdp --model llama3-70b --on v5p:8x16x16 --batch 4Mi --seq 2048
    dscale explain train "tp8 pp4 dp16" --model llama3-70b --on h100:512 --line "mlp matmuls" --solve batch
    """
    from dragonscale.commands.explain.ask_explain import ask_train

    return ask_train


@command(ExplainServeQuestion, PHYSICS, "serving", charts=("times",))
def explain_serve():
    """Where an iteration's time and memory, the time per token and the limits of serving come from.

    dscale explain serve llama3-8b --on h100 --prompt 2048 --output 512 --solve context
    """
    from dragonscale.commands.explain.ask_explain import ask_serve

    return ask_serve


@command(ExplainRooflineQuestion, PHYSICS, "rooflines", charts=("times",))
def explain_roofline():
    """Why an operation takes as long as it does.

    dscale explain roofline "bf16[B,D] @ bf16[D,F]" --on v5e
    """
    from dragonscale.commands.explain.ask_explain import ask_roofline

    return ask_roofline


@command(ExplainCollectiveQuestion, PHYSICS, "collectives", charts=("times",))
def explain_collective():
    """Why a collective takes as long as it does.

    dscale explain collective all_to_all 64MB --axis XY --on v5e:16x16
    """
    from dragonscale.commands.explain.ask_explain import ask_collective

    return ask_collective


@command(ExplainShardQuestion, PHYSICS, "sharding", charts=("times",))
def explain_shard():
    """Which bytes a sharded einsum moves, and why each resource takes as long as it does.

    dscale explain shard "In[B, D_Y] · W[D, F_Y] -> Out[B, F_Y]" --on v5e --mesh Y=4
    """
    from dragonscale.commands.explain.ask_explain import ask_shard

    return ask_shard


@command(ExplainModelQuestion, PHYSICS, "models")
def explain_model():
    """Where a model's parameters and FLOPs come from.

    dscale explain model llama3-8b --seq 8192
    """
    from dragonscale.commands.explain.ask_explain import ask_model

    return ask_model
