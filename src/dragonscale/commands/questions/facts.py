"""What `dscale calc`, `chips`, `models` and `learn` and their functions can be asked: facts that are looked up."""

import math

from dragonscale.commands.questions import shared
from dragonscale.commands.questions.flag import (
    FILES,
    SHOW,
    WHERE,
    Length,
    Question,
    Several,
    Switch,
    Text,
    Thing,
    Whole,
)


class CalcQuestion(Question):
    """One or more expressions, assignments and equations."""

    expression: Text = Text("", value="EXPR", place=True)
    """An expression such as '1e12 FLOP / v6e.bf16', with names of chips, slices, models and closed forms; 'B=64;
    2*B' assigns, and an equation is solved for its unknown. Each answer of several is printed: 'v5p.registers;
    v5p.registers / v5p.cores'."""
    find: Text = shared.FIND.but()
    """Search functions and the course's problems by words: 'switch bytes'."""
    to: Several = shared.TO.but(value="UNIT", group=SHOW)
    """The unit of the answer: ms, days, GiB, TFLOP/s, $/h, % …"""
    source: Text = shared.SOURCE.but()
    """Use one source's numbers for chips throughout, such as 'book'."""
    set: Several = shared.SET.but()
    """What if the chip were another: hbm=1.5x, nvlink=2x, flops=2x, network=800GB/s, hbm_capacity, ici, dcn, pcie,
    price … Every chip that the expression names is changed."""
    solve: Text = shared.SOLVE.but(value="LETTER")
    """The letter that an equation is solved for, where several are open."""


class ChipsQuestion(Question):
    """Every chip, one of them, a slice, or where a tiled array's elements lie."""

    name: Thing = Thing("", "NAME", place=True, offers="slices")
    """A chip's name or alias, a TOML or YAML file, which is checked, or a slice, such as v5e:8x16. All chips without
    it."""
    source: Text = shared.SOURCE
    layout: Text = Text("", "ARRAY")
    """Where a tiled array's elements lie: 'f32[3,5]{1,0:T(2,2)}'."""
    template: Switch = Switch()
    """Print a chip file to start from, with what each part of it means."""


class ModelsQuestion(Question):
    """One model by part; all presets where none is named; what runs on a chip where one is."""

    model: Thing = shared.MODEL.but(default="", value="NAME")
    """A preset (llama3-70b), org/name of the Hugging Face Hub, a config.json, a folder, a GGUF or TOML file. Without
    one: all presets."""
    seq: Length = Length.of(shared.SEQ, default="8192")
    """Tokens of a sequence, for FLOPs and caches; with --on the context that there has to be room for."""
    on: Thing = shared.ON.but(default="")
    """List the models that run on a chip or slice, with formats, context and speed: 'RTX 4090', 'M2 Pro 16GB',
    h100:8, '2x RTX 3090'."""
    here: Switch = Switch(group=WHERE)
    """The same for the devices of this machine."""
    engine: Text = shared.ENGINE.but()
    """With --on: the engine (llama.cpp, vllm, mlx …); without it, what people run there."""
    all: Switch = Switch(group=SHOW)
    """With --on: of all presets, not only of those that people run now."""
    top: Whole = shared.TOP.but(default=11, limits=(1, 1000))
    """With --on: how many models to show."""
    full: Switch = Switch()
    """Count the whole attention square, not its causal half."""
    kv_dtype: Text = shared.KV_DTYPE.but(default="bf16")
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
    einsums: Switch = Switch(group=SHOW)
    """Print the model as named einsums."""


class LearnQuestion(Question):
    """The course, a chapter, or one problem of it; an answer to be judged."""

    name: Text = Text("", "NAME", place=True, offers="lessons")
    """A chapter (rooflines) or a problem (rooflines.time-of-flops); without it, all chapters."""
    seed: Whole = shared.SEED.but(limits=(-math.inf, math.inf))
    """Fresh numbers, the same for the same seed; 0: the problem's own."""
    answer: Text = Text("", "TEXT")
    """Your answer with its unit, such as 1.2ms, 16GB or 240; or an option."""
    hint: Switch = Switch(group=SHOW)
    """Show the hints."""
    solution: Switch = Switch(group=SHOW)
    """Show the worked solution and the answer."""
    list: Switch = Switch(group=SHOW)
    """List the problems instead of asking them."""
    find: Text = shared.FIND.but()
    """Search the problems, and functions of the calculator, by words: 'mean hops'."""
    progress: Text = Text("", "FILE", FILES, offers="files")
    """The file that keeps what you solved; a file of your data folder without it."""
