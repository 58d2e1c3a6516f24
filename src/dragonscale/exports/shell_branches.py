"""The branches of a shell script: of `if`, `case` and `[ … ] && A=1 || A=2`, those that its own settings take."""

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase

Fill = Callable[[str], str]
"""Puts the values of known variables into a text."""

_TEST = re.compile(r"(?:el)?if \[\[? +([^ $`*?]*) +(={1,2}|!=|-eq|-ne|-gt|-ge|-lt|-le) +([^ $`*?]*) +\]\]?")
_ANY = re.compile(r"(?:el)?if \[ ?([^ $`*?]*) =in= (\S+) \]")
_PROBE = re.compile(r"\$\([^()]*&&\s*echo\s+\S+\s*\|\|\s*echo\s+([^\s()]+)\s*\)")
_SHORT = re.compile(r"(\s*\[\[? .+? \]\]?)\s*&&\s*([A-Za-z_]\w*=\S*)(?:\s*\|\|\s*([A-Za-z_]\w*=\S*))?\s*")
_CASE = re.compile(r"\s*case\s+(\S+)\s+in\s*")
_CLAUSE = re.compile(r"\s*\(?([^()]+?)\s*\)(.*)")
_ORDER = {"-gt": (1,), "-ge": (0, 1), "-lt": (-1,), "-le": (-1, 0)}


def as_tests(lines: Iterable[str]) -> Iterator[str]:
    """Lines with every `case` and every `[ … ] && A=1 || A=2` written as `if`. Of a probe for what is installed
    (`$(python -c 'import torch_npu' && echo npu || echo gpu)`) the second word is taken: there is none.

    >>> print(*as_tests(["case $CHIP in", "  npu) TP=4 ;;", "  *)", "    TP=2", "    ;;", "esac"]), sep="; ")
    if [ $CHIP =in= npu ];  TP=4 ; else; ;     TP=2; ; fi
    >>> print(*as_tests(["[ $PP -gt 1 ] && VPP=2 || VPP=null", "C=${C:-$(probe && echo npu || echo gpu)}"]), sep="; ")
    if [ $PP -gt 1 ]; VPP=2; else; VPP=null; fi; C=${C:-gpu}
    """
    subjects: list[tuple[str, bool]] = []
    expected = False
    for raw in lines:
        line = _PROBE.sub(r"\1", raw)
        if begun := _CASE.fullmatch(line):
            subjects.append((begun[1], True))
            expected = True
        elif subjects and line.strip() == "esac":
            yield "fi"
            subjects.pop()
            expected = False
        elif subjects and expected and (clause := _CLAUSE.fullmatch(line)):
            subject, first = subjects.pop()
            subjects.append((subject, False))
            patterns = re.sub(r"[\s'\"]", "", clause[1]).replace("|", ",")
            word = "if" if first else "elif"
            yield "else" if patterns == "*" and not first else f"{word} [ {subject} =in= {patterns} ]"
            expected = clause[2].rstrip().endswith(";;")
            yield clause[2].rstrip().removesuffix(";;")
        elif subjects and line.rstrip().endswith(";;"):
            expected = True
            yield line.rstrip().removesuffix(";;")
        elif short := _SHORT.fullmatch(line):
            yield from (f"if {short[1].strip()}", short[2], *(("else", short[3]) if short[3] else ()), "fi")
        else:
            yield line


def follow(line: str, fill: Fill, open_ones: list[str]) -> None:
    """The branches that a line is in after this one. Of a test of two words that are known, such as a switch that the
    script sets itself, one branch is `taken` and the others are not; of any other test every branch counts.

    >>> branches = ["unknown"]
    >>> for line in ('if [ "$SAVE" = "true" ]', "else", 'elif [[ $SAVE == "no" ]]', "fi"):
    ...     follow(line, lambda text: text.replace("$SAVE", "false"), branches)
    ...     print(branches)
    ['unknown', 'skipped']
    ['unknown', 'taken']
    ['unknown', 'done']
    ['unknown']
    """
    first = line.partition(" ")[0]
    if first == "fi":
        open_ones[-1:] = []
    elif first == "if":
        open_ones.append(_tested(line, fill))
    elif open_ones and first in ("elif", "else"):
        after = {"taken": "done", "skipped": "taken" if first == "else" else _tested(line, fill)}
        open_ones[-1] = after.get(open_ones[-1], open_ones[-1])


def _tested(line: str, fill: Fill) -> str:
    text = fill(line).replace('"', "").replace("'", "")
    if (several := _ANY.fullmatch(text)) is not None:
        return "taken" if any(fnmatchcase(several[1], one) for one in several[2].split(",")) else "skipped"
    found = _TEST.fullmatch(text)
    if found is None:
        return "unknown"
    left, sign, right = found.groups()
    if sign not in _ORDER:
        return "taken" if (left == right) == (sign in ("=", "==", "-eq")) else "skipped"
    if not (left.isdecimal() and right.isdecimal() and max(len(left), len(right)) < 10):
        return "unknown"
    return "taken" if (int(left) > int(right)) - (int(left) < int(right)) in _ORDER[sign] else "skipped"
