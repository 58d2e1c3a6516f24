"""A fine-tuning plan as the config of a front end: its settings by the groups of its terms, and the command that every
host starts. Front ends on the Trainer take the mesh from accelerate's config, which is written beside theirs."""

from collections.abc import Mapping
from typing import Any

from dragonscale.exports.keys import KeyTable, flag_words, load_keys
from dragonscale.exports.model_names import hub_id, is_changed
from dragonscale.exports.runs import TrainingRun, header
from dragonscale.exports.terms import Terms, load_terms
from dragonscale.exports.trainers.accelerate import CONFIG, PORT, mesh_settings
from dragonscale.exports.trainers.hub_run import PAIRED
from dragonscale.exports.written import LEADER, RANK, Word, WrittenFiles, config_file, yaml_text
from dragonscale.models.lora import ATTENTION
from dragonscale.training.plan.builds import trainers
from dragonscale.training.plan.tuning import read_tuning

RULES = load_terms("tuners")


def _settings(run: TrainingRun) -> dict[str, Any]:
    """What a config is about: the mesh as accelerate has it, and what is trained."""
    file, plan = run.file, run.plan
    tuning = read_tuning(run.model, file.method, file.lora_rank, file.lora_targets, file.frozen, file.teacher)
    words = {"": "all", "all-linear": "all", "attention": ",".join(ATTENTION[:4])}
    text = words.get(tuning.targets, tuning.targets).replace(" ", ",")
    everything = text == "all"
    trainer = "sft" if tuning.method in ("full", "lora", "qlora") else tuning.method
    values = mesh_settings(run)
    values |= {"trainer": trainer, "rank": tuning.rank, "adapters": tuning.rank > 0, "alpha": 2 * tuning.rank}
    values |= {"frozen": tuning.frozen if tuning.rank else "", "all_targets": everything, "target_text": text}
    values |= {"bits": {"nf4": 4, "int8": 8}.get(values["frozen"], 0), "packed": trainer == "sft"}
    return values | {
        "liger": "liger" in file.stack or file.stack == "axolotl",
        "liger_plugin": ["axolotl.integrations.liger.LigerPlugin"],
        "model": hub_id(file.model),
        "known": file.model.partition("?")[0],
        "changed": is_changed(file.model),
        "targets": ["all-linear"] if everything else text.split(","),
        "each": max(plan.microbatch // (2 if trainer in PAIRED else 1), 1),
        "odd": trainer in PAIRED and plan.microbatch % 2,
        "mixed": plan.dtype == "bf16",
        "ways": plan.replicas * plan.microbatch,
        "reshards": plan.zero == 3,
        # the Trainer recomputes blocks by its own switch, under FSDP too
        "fsdp_checkpoints": False,
        "precision": plan.dtype,
        # weights that stay as they are need no fp32
        # which would hold adapters in bf16 too
        "all_narrow": values["pure"] and not tuning.rank,
        "unsloth": file.stack == "unsloth",
        "narrow": values["pure"] or tuning.rank > 0,
        "partly": plan.remat not in ("none", "block"),
    }


def write_tuner(name: str, terms: Terms, table: KeyTable, run: TrainingRun) -> WrittenFiles:
    """The files of a front end, and the command of a host."""
    settings = _settings(run)
    RULES.refuse(run, name=table.software, **settings)
    terms.refuse(run, **settings)
    trainer = {"llamafactory": "llama-factory"}.get(name, name)
    if builders := trainers()[trainer].presets:
        settings |= _builders(terms, settings, builders)
    else:
        run.check_built(trainer)
    config = terms.group("config", run, **settings)
    table.check_all(config)
    main = f"{name}.yaml"
    files = {main: header(run, f"{table.software} {table.version}") + yaml_text(config)}
    words: list[Word] = [*_start(name, run, settings), config_file(main)]
    if name in ("trl", "llamafactory"):
        load_terms("accelerate").refuse(run, **mesh_settings(run))
        mesh = load_terms("accelerate").group("config", run, **settings)
        load_keys("accelerate").check_all(mesh, "config.")
        files[CONFIG] = yaml_text(mesh)
    slower = {"without_unsloth": settings["unsloth"] and name != "llamafactory"}
    notes = RULES.remark_on(run, name=table.software, **slower)
    notes += terms.remark_on(run, CONFIG=main, SCRIPT=" ".join(map(str, words)), model=settings["model"])
    return run.trained(run.plan, words, WrittenFiles(files, notes=notes), **_program(name, run))


def _start(name: str, run: TrainingRun, settings: dict[str, Any]) -> list[Word]:
    """What starts a front end, up to its config."""
    hosts: dict[str, Any] = {"--machine_rank": RANK, "--main_process_ip": LEADER, "--main_process_port": PORT}
    flags = {"--config_file": config_file(CONFIG), **(hosts if run.hosts > 1 else {})}
    launch: list[Word] = ["accelerate", "launch", *flag_words(load_keys("accelerate"), flags), "-m"]
    if name == "trl":
        return [*launch, f"trl.scripts.{settings['trainer']}", "--config"]
    if name == "llamafactory":
        return [*launch, "llamafactory.launcher"]
    if name == "axolotl":
        return ["axolotl.cli.train"]
    if name == "swift":
        return ["swift", "rlhf" if settings["trainer"] != "sft" else "sft"]
    kind = "lora" if settings["rank"] else "full"
    recipe = f"{kind}_{'dpo' if settings['trainer'] == 'dpo' else 'finetune'}"
    if run.plan.chips == 1:
        return ["tune", "run", f"{recipe}_single_device", "--config"]
    each: list[Word] = ["--nproc_per_node", str(run.slice.chips // run.hosts)]
    if run.hosts > 1:
        each += ["--nnodes", str(run.hosts), "--node_rank", RANK, "--master_addr", LEADER]
    return ["tune", "run", *each, f"{recipe}_distributed", "--config"]


def _program(name: str, run: TrainingRun) -> dict[str, Any]:
    if name == "axolotl":
        return {"per": "chip", "module": True}
    return {"env": {"NPROC_PER_NODE": str(run.plan.chips)}} if name == "swift" and run.plan.chips > 1 else {}


def _builders(terms: Terms, settings: dict[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """The builder of torchtune's model, of its tokenizer, and where adapters are put."""
    if settings["known"] not in known:
        raise terms.refused("no_model", model=settings["known"], known=", ".join(known))
    package, _, last = known[settings["known"]].rpartition(".")
    kind = "" if not settings["rank"] else "qlora_" if settings["frozen"] == "nf4" else "lora_"
    words = {"o_proj": "output_proj"}
    attention = [words.get(word, word) for word in settings["targets"] if word in ATTENTION]
    mlp = {"gate_proj", "up_proj", "down_proj"} <= set(settings["targets"])
    everything = settings["all_targets"]
    family, folder = package.rpartition(".")[2], f"/tmp/{settings['model'].rpartition('/')[2]}"
    own, qwen = terms.tables["tokenizers"].get(family, family), family.startswith("qwen")
    return {
        "builder": f"{package}.{kind}{last}",
        "tokenizer": f"torchtune.models.{own}.{own}_tokenizer",
        "vocabulary": f"{folder}/{'vocab.json' if qwen else 'tokenizer.model'}",
        "merges": f"{folder}/merges.txt" if qwen else "",
        "family": terms.tables["families"].get(family, family.upper()),
        "attention": ["q_proj", "k_proj", "v_proj", "output_proj"] if everything else attention,
        "mlp": everything or mlp,
        "folder": folder,
    }
