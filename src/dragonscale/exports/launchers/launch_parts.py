"""What launchers share: how programs lie on hosts, and a program's words as one host starts them.

>>> from dragonscale.exports.written import LaunchProgram
>>> serve = LaunchProgram("serve", ("vllm", "serve", "m", "--port", "8000"), hosts=1, chips=4, copies=3, port=8000)
>>> [(one.first, one.sharing, one.hosts) for one in placed([serve], host_chips=8)]
[(0, 2, 2)]
>>> train = LaunchProgram("train", ("train.py",), hosts=2, chips=8, per="chip")
>>> started(train, "0", "node0")[:5]
['torchrun', '--nproc-per-node', '8', '--nnodes', '2']
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dragonscale.exports import written
from dragonscale.exports.keys import shell_lines
from dragonscale.exports.launchers.chips import is_amd
from dragonscale.exports.runs import Run, ServingRun
from dragonscale.exports.target import Target
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LaunchProgram, Part, Word, quoted

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
        return self.first + copy // self.sharing, port + copy % self.sharing


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
