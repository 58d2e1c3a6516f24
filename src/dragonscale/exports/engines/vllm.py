"""vLLM on GPUs: `vllm serve`."""

from dragonscale.exports.engines.common import model_word
from dragonscale.exports.flags import flag_words, read_flags
from dragonscale.exports.hosts import hosts_of
from dragonscale.exports.imported import Given, Imported, serving_file
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import preset_named
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.source import Source
from dragonscale.exports.written import Program, Written
from dragonscale.serving.plan import ServingPlan


def write(run: ServingRun) -> Written:
    """The command of a replica."""
    plan = run.file.plan
    flags = {"--tensor-parallel-size": plan.tensor, "--max-num-seqs": run.seqs}
    hosts, chips = hosts_of(run.slice)
    words = ("vllm", "serve", model_word(run), *flag_words(load_keys("vllm"), flags))
    return Written({}, (Program("serve", words, hosts, chips, copies=run.file.replicas or 1),))


def recognises(source: Source) -> bool:
    return source.command("vllm") is not None


def read(source: Source, given: Given) -> Imported:
    """The plan of a `vllm serve` command."""
    command = source.command("vllm")
    assert command is not None
    table = load_keys("vllm")
    read = read_flags(table, command.words[2:])
    plan = ServingPlan(tensor=int(read.take("--tensor-parallel-size", 1)))
    launch = {"max_seqs": int(seqs)} if (seqs := read.take("--max-num-seqs")) else {}
    file = serving_file(source, given, plan, preset_named(read.words[0]), "vllm", launch=launch)
    return Imported("vllm", table.version, file, unknown=tuple(read.unknown))
