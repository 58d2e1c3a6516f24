"""What launchers share: how programs lie on hosts, a program's words as one host starts them, and what clusters call
chips (labels of nodes, resources of pods, accelerators of SkyPilot), and back.

Where several replicas share a host, a process sees chips of its own. A GPU is hidden by a variable of its driver. A TPU
process takes every chip of its host unless libtpu is told which chips it has, the block that they form, and that it is
alone in its slice; two processes on a host need different ports of libtpu too. `place` is the number of a replica on
its host, as the shell counts it.

>>> from dragonscale.exports.written import LaunchProgram
>>> serve = LaunchProgram("serve", ("vllm", "serve", "m", "--port", "8000"), hosts=1, chips=4, copies=3, port=8000)
>>> [(one.first, one.sharing, one.hosts) for one in placed([serve], host_chips=8)]
[(0, 2, 2)]
>>> train = LaunchProgram("train", ("train.py",), hosts=2, chips=8, per="chip")
>>> started(train, "0", "node0")[:5]
['torchrun', '--nproc-per-node', '8', '--nnodes', '2']
>>> (
...     chip_called("tpu-v5-lite-podslice"),
...     chip_called("nvidia-h100-mega-80gb"),
...     chip_called("A100-80GB"),
...     chip_called("p5.48xlarge"),
... )
('v5e', 'h100', 'a100', 'h100')
>>> chip_called("NVIDIA-H200"), chip_called("NVIDIA-B200"), chip_called("nvidia-k80")
('h200', 'b200', '')
>>> print(*own_chips(load_chip("v6e"), 4, "copy"), sep="\\n")
export TPU_VISIBLE_CHIPS=$(seq -s, $((copy * 4)) $((copy * 4 + 3)))
export TPU_CHIPS_PER_PROCESS_BOUNDS=2,2,1
export TPU_PROCESS_BOUNDS=1,1,1
export TPU_PROCESS_PORT=$((8476 + copy))
export TPU_PROCESS_ADDRESSES=localhost:$((8476 + copy))
export CLOUD_TPU_TASK_ID=0
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dragonscale.exports import written
from dragonscale.exports.keys import shell_lines
from dragonscale.exports.runs import Run, ServingRun
from dragonscale.exports.target import Target
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LaunchProgram, Part, Word, quoted
from dragonscale.physics.hardware.catalogue import is_chip, load_chip
from dragonscale.physics.hardware.chip import Chip

TERMS = load_terms("launchers")

PORT = 29500
"""Where torchrun's processes meet, on the first host: its own default."""


@dataclass(frozen=True)
class OnHosts:
    """A program and the hosts it lies on: the first of them, and how many of its copies share one."""

    program: LaunchProgram
    first: int
    sharing: int = 1

    @property
    def hosts(self) -> int:
        """Hosts of all copies."""
        if not self.program.chips:
            return 0
        return -(-self.program.copies // self.sharing) * self.program.hosts

    def place_of(self, copy: int, port: int) -> tuple[int, int]:
        """The first host of a copy, and its port: copies that share a host count theirs up."""
        if self.sharing == 1:
            return self.first + copy * self.program.hosts, port
        return self.first + copy // self.sharing, port + copy % self.sharing * self.program.apart


def placed(programs: Sequence[LaunchProgram], host_chips: int) -> list[OnHosts]:
    """Programs one after the other on hosts; copies that need only a part of a host share one, and a program without
    chips (a router) is on the first. Pools that hand caches over have more ports than one, so their copies do not
    share."""
    several = sum(1 for program in programs if program.chips) > 1
    found: list[OnHosts] = []
    first = 0
    for program in programs:
        fits = max(host_chips // program.chips, 1) if program.chips and program.hosts == 1 and not several else 1
        one = OnHosts(program, first if program.chips else 0, min(fits, max(program.copies, 1)))
        found.append(one)
        first += one.hosts
    return found


ADDRESS = re.compile(r"\b([a-z]+)-(\d+):(\d+)\b")
"""How a program names a copy of another in its files: `prefill-0:8001` is the first copy of `prefill`."""


def addresses(text: str, places: Sequence[OnHosts]) -> dict[str, tuple[int, int]]:
    """The copies of programs that a text names, each with its first host and its port.

    >>> pool = OnHosts(LaunchProgram("prefill", ("serve",), hosts=2, chips=8, copies=2), first=4)
    >>> addresses("urls: [prefill-0:8001, prefill-1:8001]", [pool])
    {'prefill-0:8001': (4, 8001), 'prefill-1:8001': (6, 8001)}
    """
    named = {one.program.name: one for one in places}
    found = (match for match in ADDRESS.finditer(text) if match[1] in named)
    return {match[0]: named[match[1]].place_of(int(match[2]), int(match[3])) for match in found}


def started(
    program: LaunchProgram, rank: Word, leader: Word, port: Word = "", worker: bool = False, meet: Sequence[Word] = ()
) -> list[Word]:
    """A program's words as one host starts them. `port` stands for its own where copies share a host; a `worker` is a
    host after the first; `meet` are words that tell torchrun where its processes meet, without the number of the host.
    """
    fill = {written.RANK: rank, written.LEADER: leader, written.HOSTS: str(program.hosts)}
    words = [written.filled(word, fill) for word in (*program.words, *(program.others if worker else ()))]
    words = with_port(words, port) if port else words
    if program.per == "rank":
        return ["mpirun", "-n", str(program.hosts * program.chips), "-N", str(program.chips), *words]
    return words if program.per == "host" else [*_torchrun(program, rank, leader, meet), *words]


def _torchrun(program: LaunchProgram, rank: Word, leader: Word, meet: Sequence[Word]) -> list[Word]:
    words: list[Word] = ["torchrun", "--nproc-per-node", str(program.chips)]
    if program.hosts > 1:
        place = meet or ["--node-rank", rank, "--master-addr", leader, "--master-port", str(PORT)]
        words += ["--nnodes", str(program.hosts), *place]
    return [*words, *(["-m"] if program.module else [])]


def with_port(words: Sequence[Word], port: Word) -> list[Word]:
    """Words with another port; engines all call it `--port`.

    >>> with_port(["vllm", "serve", "m", "--port", "8000"], "8001")
    ['vllm', 'serve', 'm', '--port', '8001']
    """
    found = list(words)
    if "--port" in found:
        found[found.index("--port") + 1] = port
        return found
    return [*found, "--port", port]


def host_lines(
    program: LaunchProgram, rank: Word, leader: Word, port: Word = "", meet: Sequence[Word] = ()
) -> list[str]:
    """The command that each host starts, as lines of a shell script."""
    first = shell_lines(started(program, rank, leader, port, meet=meet))
    if not program.others or program.hosts == 1:
        return [first]
    rest = shell_lines(started(program, rank, leader, port, worker=True, meet=meet))
    return [f"if [ {quoted(rank)} = 0 ]; then", first, "else", rest, "fi"]


def own_address(program: LaunchProgram, host: str) -> list[str]:
    """The line that tells vLLM's NIXL connector the host it is on; it hands out this address to the other pool."""
    return [f"export VLLM_NIXL_SIDE_CHANNEL_HOST={host}"] if "VLLM_NIXL_SIDE_CHANNEL_PORT" in program.env else []


def env_lines(env: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in env.items()]


def with_files(program: LaunchProgram, folder: str) -> LaunchProgram:
    """A program whose words name the config files where a launcher puts them.

    >>> from dragonscale.exports.written import config_file
    >>> with_files(LaunchProgram("train", ("run.py", config_file("a.toml"), "a.toml"), 1, 8), "/config").words
    ('run.py', '/config/a.toml', 'a.toml')
    """

    def placed_in(part: Part) -> Part:
        return f"{folder}/{part.name}" if isinstance(part, written.ConfigFile) else part

    return with_words(program, placed_in)


def with_words(program: LaunchProgram, change: Callable[[Part], Word | Part]) -> LaunchProgram:
    """A program with what `change` makes of each part of its words that is not text."""
    return replace(program, words=tuple(written.changed(word, change) for word in program.words))


def uses_words(program: LaunchProgram, mark: written.MixedWord) -> bool:
    """Whether a program's words have a place for what a launcher fills in."""
    return any(written.holds(word, mark) for word in (*program.words, *program.others))


def needs_rank(program: LaunchProgram) -> bool:
    """Whether a host has to know its number: torchrun asks for it, and hosts after the first may have other words."""
    return program.per == "chip" or bool(program.others) or uses_words(program, written.RANK)


def needs_leader(program: LaunchProgram) -> bool:
    """Whether a host has to know the first one's address."""
    return program.per == "chip" or uses_words(program, written.LEADER)


def job_name(run: Run, target: Target, longest: int = 40) -> str:
    """A name of letters, digits and dashes, as Kubernetes takes them."""
    text = re.sub(r"[^a-z0-9]+", "-", f"{run.model.name}-{target.name}".lower()).strip("-")
    return text[:longest].strip("-")


def run_of(program: LaunchProgram, run: Run) -> Run:
    """The run that a program belongs to: the pool that prefills has its own slice."""
    if program.name == "prefill" and isinstance(run, ServingRun) and run.prefill is not None:
        return run.prefill
    return run


PYTORCH = TERMS.tables["images"]["megatron"][0]


def image_of(program: LaunchProgram, run: Run, target: Target) -> str:
    """The container image of a program; one to be filled in where nobody publishes one."""
    if program.image:
        return program.image
    nvidia, amd = TERMS.tables["images"].get(target.name, ("", ""))
    chip = run_of(program, run).slice.chip
    known = (amd if is_amd(chip) else nvidia) if chip.kind == "gpu" else ""
    return known.format(version=target.version) or f"registry.example/{target.name}:{target.version}"


def needs_image(program: LaunchProgram, run: Run, target: Target) -> bool:
    return image_of(program, run, target).startswith("registry.example/")


def image_remark(program: LaunchProgram, run: Run, target: Target) -> str:
    """What someone has to see to before an image runs the program; empty where it has the very version."""
    image, software = image_of(program, run, target), f"{target.title} {target.version}"
    if needs_image(program, run, target):
        return f"Put an image that has {software} in place of registry.example/…."
    if image == PYTORCH:
        return TERMS.say("pytorch_alone", image=image, software=software)
    own = f"{image} has its own {target.title}; the settings are those of {target.version}."
    return own if image.startswith("nvcr.io/nvidia/nemo") else ""


GKE_TPUS = TERMS.tables["gke_tpus"]

GKE_GPUS = TERMS.tables["gke_gpus"]

SKY = TERMS.tables["skypilot_gpus"]

_OTHERS = TERMS.tables["machine_types"]
_BACK = {label.lower(): chip for table in (SKY, GKE_TPUS, GKE_GPUS) for chip, label in table.items()} | _OTHERS


def chip_called(label: str) -> str:
    """The chip of a label, a machine type or an accelerator's name; empty where it is not known."""
    text = label.strip().lower().removeprefix("standard_")
    if text in _BACK:
        return _BACK[text]
    for part in (text.partition(".")[0], text.rpartition("-")[0], text.rpartition("_")[0]):
        if part in _BACK:
            return _BACK[part]
    return _product(text)


def _product(text: str) -> str:
    """A product as the driver names it: `NVIDIA-H100-80GB-HBM3`, `AMD_Instinct_MI300X`."""
    for lead in ("nvidia-", "nvidia_", "amd_instinct_", "amd-instinct-", "geforce-", "geforce_"):
        text = text.removeprefix(lead)
    words = text.replace("_", "-").split("-")
    if words[0] == "a100" and "40gb" in words:
        return "a100-40gb"
    return load_chip(words[0]).name if is_chip(words[0]) else ""


def resource_of(chip: str, kind: str) -> str:
    """The resource that a pod asks for."""
    return "google.com/tpu" if kind == "tpu" else "amd.com/gpu" if chip.startswith("mi") else "nvidia.com/gpu"


RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu")


BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
"""Blocks of a host's chips that libtpu gives to one process. 1, 2 and 4: the list by one of JAX's authors that
jax-ml/jax#14977 and Ray's TPU support refer to (gist.github.com/skye/f82ba45d2445bb19d53545538754f9a3); 8: the topology
2x4 of a whole host of v5e or v6e. tpu-inference writes 1,4,1 for four chips of its own processes (tpu_worker.py): that
is as many chips, but the slice that is planned is 2x2."""
LIBTPU_PORT = 8476
"""Where libtpu listens by itself; tpu-inference gives its own processes on a host different ones (tpu_worker.py)."""


def is_amd(chip: Chip) -> bool:
    return chip.kind == "gpu" and chip.name.startswith("mi")


def own_chips(chip: Chip, chips: int, place: str) -> list[str]:
    """Lines that leave a process so many chips of a host that is its own."""
    listed = f"$(seq -s, $(({place} * {chips})) $(({place} * {chips} + {chips - 1})))"
    if chip.kind == "gpu":
        return [f"export {_variable(chip)}={listed}"]
    if chips not in BOUNDS or chip.host_chips % chips:
        legal = ", ".join(str(count) for count in BOUNDS if count <= chip.host_chips and chip.host_chips % count == 0)
        raise TERMS.refused("libtpu_blocks", chip=chip, legal=legal, chips=chips)
    port = f"$(({LIBTPU_PORT} + {place}))"
    said = TERMS.group("libtpu", listed=listed, bounds=BOUNDS[chips], port=port, address=f"localhost:{port}")
    return [f"export {name}={value}" for name, value in said.items()]


def own_part(chip: Chip, chips: int, place: str) -> list[str]:
    """The same inside a task of Slurm, which says itself which GPUs of the host the job has: a replica takes its part
    of that list. Slurm sets the variable anew for each step (gres_gpu), so that only the task can narrow it."""
    if chip.kind != "gpu":
        return own_chips(chip, chips, place)
    every, name = ",".join(map(str, range(chip.host_chips))), _variable(chip)
    fields = f"$(({place} * {chips} + 1))-$(({place} * {chips} + {chips}))"
    return [f"given=${{{name}:-{every}}}", f'export {name}=$(cut -d, -f{fields} <<< "$given")']


def _variable(chip: Chip) -> str:
    return "HIP_VISIBLE_DEVICES" if is_amd(chip) else "CUDA_VISIBLE_DEVICES"
