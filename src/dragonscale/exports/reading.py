"""Whose words a text is in, and what plan they say.

>>> found = read_plan(
...     "vllm serve meta-llama/Meta-Llama-3-8B --tensor-parallel-size 2 --max-num-seqs 64", Given(slice="h100:2")
... )
>>> found.target, found.file.plan.tensor, found.file.model
('vllm', 2, 'llama3-8b')
"""

from dragonscale.errors import InputError
from dragonscale.exports.edited import as_edited
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.launchers.unwrap import unwrapped
from dragonscale.exports.software import software
from dragonscale.exports.source import Source
from dragonscale.exports.target import Target, of_kind

SOFTWARE = ("training", "serving")


def recognised(source: Source) -> Target | None:
    """The target whose words a text is in; None where it is nobody's."""
    for kind in SOFTWARE:
        for target in of_kind(kind):
            if software(target).recognises(source):
                return target
    return None


def read_plan(given: str, beside: Given | None = None) -> Imported:
    """The plan that a file, a folder or a pasted command says."""
    source = unwrapped(Source.of(given))
    target = recognised(source)
    if target is None:
        if source.table is not None and "plan" in source.table:
            here = "`dscale export` writes it for other software"
            raise InputError(f"{source.shown} is a plan of dscale already; {here}.")
        names = ", ".join(one.title for kind in SOFTWARE for one in of_kind(kind))
        raise InputError(f"{source.shown} is neither a config nor a command of {names}.")
    said = beside or Given()
    return as_edited(software(target).read(source, said), source, said)
