"""What a fuzzer writes on a command line: what people mean, nearly that, and what nobody should.

Good values are found by a flag's name, so a command's questions go deep; a flag of a new name gets
those of its type. Every value may be spoilt on its way.
"""

import random
import tomllib
from pathlib import Path
from typing import Any

WORDS: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("words.toml").read_text(encoding="utf-8")
)
"""Good values by command and flag; those of `any` for every command."""

USUAL = ("model", "on", "batch", "seq", "prompt", "output", "rate", "mesh", "requests")
"""Flags that most questions need, whether or not they must be given."""

OUTPUTS = ("save", "plot", "out", "html", "timeline", "perfetto", "metrics", "checkpoints", "table")
"""Flags that name a file to write: these stay in the fuzzer's folder."""
PLACES = [
    "out.toml",
    "out.svg",
    "out.html",
    "out.json",
    "out.csv",
    "nowhere/out.json",
    "/dev/null",
    "/dev/full",
    "",
    ".",
    "out",
]

HOSTILE = [
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "-1e308",
    "1e-320",
    "1e308GB",
    "1e300T",
    "0",
    "-0",
    "-1",
    "0.5",
    "1.6",
    "00000000008",
    "9" * 23,
    "1e23",
    "-5s",
    "0s",
    "0/s",
    "0GB",
    "1e-300s",
    "\u00bd",
    "\u0663\u0664",
    "\uff11\uff12",
    "\u001b[31mred\u001b[0m",
    "\u0007",
    "\u0000",
    "\u202e",
    "\udcff",
    "a" * 3000,
    "8" * 5000,
    "1,5GB",
    "0,5s",
    "1,2,3",
    "--",
    "-",
    "=",
    ",",
    ";",
    ":",
    "*",
    "x",
    "+",
    "|",
    "%",
    "1%",
    "101%",
    "-1%",
    "{}",
    "[]",
    "{",
    "null",
    "True",
    "none",
    "[1,2]",
    "a=b",
    "a=b,a=b",
    "=1",
    "tp0",
    "tp8 tp8",
    "tp99999999",
    "pp-1",
    "fsdp=1e9",
    "h100:0",
    "h100:8000000000000",
    "h100:7",
    "v5e:4",
    "v5p:4x4x4*9999999",
    "v5e:4x4*0",
    "9999999xh100",
    "v5p-7",
    "h100+hbm=0x",
    "h100+hbm=nan:8",
    "h100+hbm=2x+hbm=2x",
    "h100+x=2x",
    "h100+=",
    "h100:8+hbm=2x",
    "any,h100",
    "all",
    ",,",
    "h100,,h100",
    "h100:10000000",
    "nowhere.toml",
    "nowhere/config.json",
    "/dev/zero",
    "/dev/null",
    "/dev/stdin",
    ".",
    "..",
    "{fifo}",
    "{fifo}.toml",
    "{zero}.toml",
    "{zero}.json",
    "10x999999999",
    "1..0,target=1",
    "0..0,target=0",
    "9@1e300s",
    "0@nan",
    "1e400",
    "0x10",
    "1_000",
    "$5",
    "5$/h",
    "1/h",
    "2/h,3/h",
    "1024k",
    "1M",
    "100000000",
    "100000001",
    "1e18",
    "1e19",
    "4Ei",
    "0.0001k",
    "<script>",
    "'\"",
    "~",
    "\\",
    "\n",
    "a\nb",
    "\t",
]
STRANGE_JSON: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e308,
    float("nan"),
    float("inf"),
    10**400,
    [],
    {},
    [[]],
    {"a": 1},
    [None],
    ["a", 1],
    "\x1b[31m",
    "\x00",
    "\udcff",
    "a\nb",
    "x" * 5000,
    "\u202e",
]
"""What JSON may hold where text or a number is wanted."""
NOTATION = ("expression", "mesh", "sizes", "axis", "on", "layout", "size")
_UNITS = ["GB", "GiB", "/s", "s", "ms", "k", "M", "T", "%", "x", "seq", "/h", "e9", ".5", "0" * 12]


def good(command: str, name: str, kind: Any, dice: random.Random) -> str:
    """A value that somebody means."""
    if name in OUTPUTS:
        return dice.choice(PLACES[:5])
    words = WORDS.get(command, {}).get(name) or WORDS["any"].get(name)
    if words:
        return dice.choice(words)
    if "int" in str(kind):
        return str(dice.choice([0, 1, 2, 3, 8, 50]))
    return str(dice.choice([0.1, 0.5, 1.0, 2.0])) if "float" in str(kind) else dice.choice(["1", "a", "auto"])


def spoilt(text: str, dice: random.Random) -> str:
    """A value with one thing wrong with it."""
    place = dice.randrange(len(text) + 1)
    way = dice.randrange(8)
    if way == 0:
        return text[:place] + text[place + 1 :]
    if way == 1:
        return text[:place] + dice.choice("0123456789-+.,:=x*/ ekKMGB") + text[place:]
    if way == 2:
        return text + dice.choice(_UNITS)
    if way == 3:
        return "-" + text
    if way == 4:
        return text.swapcase()
    if way == 5:
        return text + dice.choice([",", " ", ":"]) + text
    if way == 6:
        return "".join(dice.choice("0123456789") if letter.isdigit() else letter for letter in text)
    return text.replace(dice.choice("=:x,-"), dice.choice("=:x,- "))


def any_value(command: str, name: str, kind: Any, dice: random.Random) -> str:
    """Good, nearly good or hostile; a file to write to never leaves the fuzzer's folder."""
    chance = dice.random()
    if name in OUTPUTS:
        return dice.choice(PLACES)
    if name == "requests":  # more are simulated, for minutes
        return dice.choice(["50", "0", "-1", "1.5", "nan", "1e300", "", "x", "1e9", "10 0", "5k"])
    if name in NOTATION and chance > 0.8:
        return "".join(dice.choices("ABIJKXY_[]{}@,->·*= 0123456789bf16U:", k=dice.randrange(40)))
    if chance < 0.3:
        return good(command, name, kind, dice)
    return spoilt(good(command, name, kind, dice), dice) if chance < 0.75 else dice.choice(HOSTILE)
