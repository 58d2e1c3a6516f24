"""Commands out of shell text: what someone pasted, a launch script, a batch job.

Enough of a shell to read the scripts that projects publish: comments, continued lines, quotes, variables and arrays
that are set before they are used, `${NAME:-default}`, `$((…))` of numbers, `export`, here-documents left out. Nothing
is ever run. What is before the command itself (`srun`, `torchrun`, `mpirun`, `docker run`, `env`, `nohup`) is taken off
and kept.

>>> found = read_commands('''
... TP=8  # ranks of a node
... ARGS=(--tensor-model-parallel-size $TP --bf16)
... torchrun --nnodes 4 --nproc_per_node=8 pretrain_gpt.py \\\\
...     "${ARGS[@]}"
... ''')
>>> found[0].words
['pretrain_gpt.py', '--tensor-model-parallel-size', '8', '--bf16']
>>> found[0].launch
{'nnodes': '4', 'nproc-per-node': '8'}
"""

import ast
import itertools
import operator
import re
import shlex
from dataclasses import dataclass, field

from dragonscale.exports.shell_branches import as_tests, follow
from dragonscale.exports.terms import load_terms

TERMS = load_terms("shell")

_ASSIGN = re.compile(r"(?:export\s+|declare\s+(?:-\w+\s+)?|local\s+)?([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?(?:(:?-|:?=)([^}]*))?\}|\$([A-Za-z_]\w*)")
_REQUIRED = re.compile(r"\"?\$\{[A-Za-z_]\w*:?\?[^}]*\}\"?")
_SUM = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)|\$\(expr ([^()]*)\)")
_HERE = re.compile(r"<<-?[ \t]*['\"]?(\w+)['\"]?|(?<!\S)#.*|'[^']*'|\"(?:\\.|[^\"\\])*\"")
"""What begins a here-document; or a comment or text in quotes, which begin none."""
_REDIRECT = re.compile(r"(?:\d|&)?>{1,2}(?:&\d)?|<")
_LAUNCHERS = TERMS.lists["launchers"]
_SWITCHES = frozenset(TERMS.lists["switches"])


_VERBS = {"accelerate": "launch", "tune": "run"}
_NODES = ("nnodes", "nodes", "N", "num_machines", "num_nodes")
_TASKS = ("ntasks", "n", "np")
"""The processes of Slurm and of MPI, on all hosts together."""


@dataclass
class ShellCommand:
    """A command: its words, the variables set for it, and the flags of what launches it, without dashes."""

    words: list[str]
    env: dict[str, str] = field(default_factory=dict)
    launch: dict[str, str] = field(default_factory=dict)
    launcher: str = ""

    @property
    def processes(self) -> int:
        """Processes that the launcher starts in all; 0 where it does not say."""
        said = self.launch
        nodes = next((said[name] for name in _NODES if said.get(name)), "1")
        own = next((said[name] for name in ("nproc-per-node", "num_gpus") if name in said), "")
        if "num_processes" in said or own:  # of torchrun and its like, which srun may start once for each host
            return _number(said["num_processes"]) if "num_processes" in said else _number(nodes) * _number(own)
        each = next((said[name] for name in ("ntasks-per-node", "gpus-per-node", "gpus-per-task") if name in said), "")
        tasks = _number(next((said[name] for name in _TASKS if name in said), ""))
        if self.launcher in ("torchrun", "accelerate", "deepspeed") or tasks == _number(nodes) > 1:
            tasks = 0  # one for each host, which starts those of its chips
        return tasks or _number(nodes) * _number(each)


def _number(text: str) -> int:
    first = text.split(":")[0]  # torchrun takes a range of nodes
    return int(first) if first.isdecimal() and len(first) < 10 else 0


def read_commands(text: str) -> list[ShellCommand]:
    """The commands of a text, variables filled in, assignments and what cannot be read left out."""
    batch = batch_flags(text)
    # what Slurm sets by the script's own lines
    names = {name: batch[flag] for name, flag in TERMS.tables["batch_variables"].items() if flag in batch}
    found: list[ShellCommand] = []
    branches: list[str] = []
    for line in _lines(text):
        follow(line.strip(), lambda text: _filled(text, names), branches)
        if {"skipped", "done"} & {*branches}:
            continue
        line = _without_control(line.strip(), names)
        if line.startswith(": "):  # `: "${TP:=8}"` sets what is not set yet
            for usual in (one for one in _VARIABLE.finditer(line) if (one[2] or "").endswith("=")):
                names[usual[1]] = names.get(usual[1]) or _filled(usual[3], names)
            continue
        assigned = _ASSIGN.fullmatch(line)
        if assigned and _REQUIRED.fullmatch(assigned[3].strip()):
            continue  # `RANK=${RANK:?its number}`: set by whoever starts the script
        if assigned and _is_assignment(assigned[3]):
            if re.match(r"\"?(\$\((?!\()|`)", assigned[3].strip()):  # what a command prints is not known here
                names.pop(assigned[1], None)
                continue
            value = _filled(_array(assigned[3]), names)
            names[assigned[1]] = f"{names.get(assigned[1], '')} {value}".strip() if assigned[2] else value
            continue
        words = words_of(_filled(line, names))
        if words:
            command = _unwrapped(words)
            command.launch = {**batch, **command.launch}
            command.env = {**{k: v for k, v in names.items() if k.isupper()}, **command.env}
            if command.words:
                found += [command, *_inside(command)]
    return found


def _inside(command: ShellCommand) -> list[ShellCommand]:
    """The commands of the script that a command is given as one word: `bash -c "…"`, `xpk workload create
    --command="…"`."""
    words, script = command.words, ""
    if words[0].rsplit("/", 1)[-1] in ("bash", "sh") and words[1:2] in (["-c"], ["-lc"], ["-ec"]) and len(words) > 2:
        script = words[2]
    elif words[0] == "xpk":
        script = next((word.partition("=")[2] for word in words if word.startswith("--command=")), "")
    found = read_commands(script) if script else []
    for one in found:
        one.launch, one.env = {**command.launch, **one.launch}, {**command.env, **one.env}
        one.launcher = one.launcher or command.launcher
    return found


_TORCHRUN = ("-m torch.distributed.run", "-m torch.distributed.launch")
_CONTROL = ("then", "do", "else", "done", "fi", "wait", "unset")
_LOOP = re.compile(r"for (?:\(\(\s*(\w+)\s*=\s*(\d+)|(\w+) in (\S+)).*", re.DOTALL)


def _without_control(line: str, names: dict[str, str]) -> str:
    """A line without the words that steer a script; a loop's variable has its first value.

    >>> names: dict[str, str] = {}
    >>> _without_control("for ((copy = 0", names), _without_control("then vllm serve m", names), names
    ('', 'vllm serve m', {'copy': '0'})
    """
    if loop := _LOOP.fullmatch(line):
        names[loop[1] or loop[3]] = loop[2] or loop[4]
        return ""
    if re.match(r"(if|elif|while|until)\s", line) or re.fullmatch(r"\w+ ?[<>]=? ?\S+|\w+\+\+\)\)", line):
        return ""
    first, _, rest = line.partition(" ")
    return line if first not in _CONTROL else "" if first in ("unset", "wait") else rest.strip()


def batch_flags(text: str) -> dict[str, str]:
    """The `#SBATCH` lines of a script, by their long names."""
    short = TERMS.tables["batch_options"]
    found: dict[str, str] = {}
    for line in re.findall(r"^#SBATCH\s+(.+)$", text, re.MULTILINE):
        name, _, value = re.sub(r"\s+#.*", "", line).strip().lstrip("-").replace(" ", "=", 1).partition("=")
        found[short.get(name, name)] = value.strip()
    return found


def _lines(text: str) -> list[str]:
    """Logical lines: comments and here-documents gone, continued lines and brackets joined, split at `;`, `&&`, `||`
    and `|`."""
    text = re.sub(r"(?:\\\n[ \t]*)+", " ", text)
    # a pasted line may begin with a prompt
    kept = "\n".join(as_tests(re.sub(r"^\s*[$>] ", "", line) for line in _apart(text)[0]))
    return [part for part in _split(kept) if part.strip()]


def _split(text: str) -> list[str]:
    """The parts of a text between line ends and operators that stand outside of quotes, without comments, in one pass.
    Line ends inside of an array's brackets are blanks."""
    parts, part, quote, depth, at = [], list[str](), "", 0, 0
    while at < len(text):
        sign = text[at]
        before = part[-1] if part else " "
        if quote:
            quote = "" if sign == quote and before != "\\" else quote
        elif sign in "\"'" and before != "\\":
            quote = sign
        elif sign == "#" and before in " \t" and not text.startswith("#{", at):
            at = _line_end(text, at)
            continue
        elif sign == "(" and (before == "=" or depth):
            depth += 1
        elif sign == ")" and depth:
            depth -= 1
        elif sign == "\n" and depth:
            sign = " "
        elif (sign in "\n;" or text.startswith(("&&", "||"), at) or _pipes(text, at, before)) and not depth:
            parts.append("".join(part))
            part = []
            at += 2 if text.startswith(("&&", "||"), at) else 1
            continue
        part.append(sign)
        at += 1
    return [*parts, "".join(part)]


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _pipes(text: str, at: int, before: str) -> bool:
    """Whether a pipe or a command sent into the background ends here; `2>&1` and `&>` are redirections."""
    if text[at] == "|":
        return True
    return text[at] == "&" and before not in "><&" and not text.startswith("&>", at)


def documents(text: str) -> list[tuple[str, str]]:
    """The here-documents of a script, each after the line that begins it; one without an end is none.

    >>> documents("cat > ds.json <<'EOF'\\n{}\\nEOF\\nrun ds.json")
    [("cat > ds.json <<'EOF'", '{}')]
    """
    return _apart(text)[1]


def _apart(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The lines outside of here-documents, and those."""
    lines, found, body, end = list[str](), list[tuple[str, str]](), list[str](), ""
    for line in text.splitlines():
        if not end:
            lines.append(line)
            body, end = [], _document(line)
        elif line.strip() == end:
            found.append((lines[-1], "\n".join(body)))
            end = ""
        else:
            body.append(line)
    return lines, found


def _document(line: str) -> str:
    """The word that ends the here-document that a line begins; empty where it begins none.

    >>> _document("cat <<'EOF' > ds.json"), _document("vllm serve 'a <<E b'")
    ('EOF', '')
    """
    return next((found[1] for found in _HERE.finditer(line) if found[1]), "")


def _is_assignment(value: str) -> bool:
    """Whether a line only sets a variable, and does not run a command with it (`CUDA_VISIBLE_DEVICES=0
    vllm serve …`)."""
    text = value.strip()
    if text.startswith(("(", "$(", "`")) or re.fullmatch(r"\$\{[^{}]*\}", text):  # `${RANK:?0 to 3}` is one word
        return True
    try:  # `${RANK:?the number of this host}` is one word
        return len(shlex.split(re.sub(r"\$\{[^{}]*\}", "x", text))) <= 1
    except ValueError:
        return True


def _array(value: str) -> str:
    text = value.strip()
    if text.startswith("(") and text.endswith(")"):
        return text[1:-1].strip()
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        return text[1:-1].replace("'\"'\"'", "'")  # how a quote is written inside of such quotes
    return text


def _filled(text: str, names: dict[str, str]) -> str:
    """Text with the variables that are known, sums worked out; a variable that is not known stays as it is."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1] or match[4], match[3]
        return names.get(name) or (default if default is not None else names.get(name, match[0]))

    text = re.sub(r'"(\$\{\w+\[@\]\})"', r"\1", text)  # an array is as many words as it has
    for _ in range(4):  # variables of variables
        text = _VARIABLE.sub(value, text)
    return _SUM.sub(lambda match: _summed(match, names), text)


def _summed(match: re.Match[str], names: dict[str, str]) -> str:
    said = match[1] or match[2].replace("\\*", "*")
    inner = re.sub(r"\b[A-Za-z_]\w*\b", lambda name: names.get(name[0], "x"), said)
    if "x" in inner or not re.fullmatch(r"[\d\s+\-*/()%]{1,200}", inner) or "**" in inner:
        return match[0]
    try:
        return str(int(_arithmetic(inner)))
    except (ValueError, ZeroDivisionError, SyntaxError, RecursionError):
        return match[0]


def _arithmetic(text: str) -> int:
    """A sum of whole numbers, worked out without running it."""
    kinds = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod}
    kinds |= dict.fromkeys((ast.Div, ast.FloorDiv), operator.floordiv)

    def worth(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in kinds:
            return kinds[type(node.op)](worth(node.left), worth(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -worth(node.operand)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        raise ValueError("not a sum")

    return worth(ast.parse(text.strip(), mode="eval").body)


def words_of(line: str) -> list[str]:
    """The words of a line, without what is redirected."""
    try:
        words = [word for word in shlex.split(line) if word]
    except ValueError:  # a quote that never ends
        words = line.replace('"', " ").replace("'", " ").split()
    at = next((place for place, word in enumerate(words) if _REDIRECT.fullmatch(word)), len(words))
    return words[:at]


def _unwrapped(words: list[str]) -> ShellCommand:
    """The command behind its launchers."""
    command = ShellCommand([])
    while words:
        assigned = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", words[0], re.DOTALL)
        program = words[0].rsplit("/", 1)[-1]
        if assigned:
            command.env[assigned[1]] = assigned[2]
            words = words[1:]
        elif program in _LAUNCHERS and (program not in _VERBS or words[1:2] == [_VERBS[program]]):
            starts = program in ("torchrun", "accelerate", "deepspeed", "tune")
            command.launcher = program if starts else command.launcher or program
            words = words[2:] if program in _VERBS else words[1:]
            words = words[1:] if program == "uv" and words[:1] == ["run"] else words
            words = _launch_flags(words, command.launch)
        elif program in ("docker", "podman") and "run" in words[:2]:
            words = _in_container(words[2:])
        elif program.startswith("python") and " ".join((rest := _after_switches(words))[:2]) in _TORCHRUN:
            command.launcher = "torchrun"
            words = _launch_flags(rest[2:], command.launch)
        else:
            break
    command.words = words
    return command


def _after_switches(words: list[str]) -> list[str]:
    """What Python is given but for its own switches, as in `python -u -m torch.distributed.run`."""
    return list(itertools.dropwhile(lambda word: word in ("-u", "-O", "-B"), words[1:]))


def _launch_flags(words: list[str], into: dict[str, str]) -> list[str]:
    """What follows the flags of a launcher; those go into a table, dashes between words."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        name, equals, value = words[at].lstrip("-").partition("=")
        at += 1
        own = "_" in name and name.startswith(TERMS.lists["underscored"])  # accelerate's own flags
        plain = name if own else name.replace("_", "-")
        takes = not equals and not {name, plain} & _SWITCHES
        if takes and at < len(words) and not words[at].startswith("-"):
            value = words[at]
            at += 1
        into[plain] = value or "true"
        if plain in ("m", "module"):  # what follows is the program
            break
    return words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]


_CONTAINER_SWITCHES = ("-it", "-i", "-t", "-d", "--rm", "--privileged", "--init", "-ti", "--detach")


def _in_container(words: list[str]) -> list[str]:
    """The command after `docker run`, its flags and the image; flags after the image are the engine's own."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 1 if "=" in words[at] or words[at] in _CONTAINER_SWITCHES else 2
    image, rest = words[at : at + 1], words[at + 1 :]
    own_program = rest and (rest[0] in TERMS.lists["programs"] or rest[0].startswith(("python", "/")))
    if image and rest and not own_program:  # flags or a model: the image's entry point is the engine
        name = image[0].lower()
        for word, program in TERMS.tables["entry_points"].items():
            if word in name:
                return [*program, *rest]
    return rest
