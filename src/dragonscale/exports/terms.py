"""What a target says in its own words, as data: `terms/NAME.toml`, beside the tables of keys.

A file has lists and tables of words (names that change nothing of a plan, spellings, formats), groups of settings,
texts, the sentences of its notes and refusals, and what it runs differently from a plan. A setting of a group is a
constant, a table of settings, or a rule:

| rule | what is written |
|---|---|
| `of = "plan.tensor"` | what the run has there |
| `set = true` | this value |
| `said = "every"`, `usual = 1000`, `as = "int"` | what the plan file's `[run]` says, or the usual value; of this type |
| `group = "zero"` | another group, as a table |
| `choice = "backend"` | what the first row of a choice is that holds |
| `by = "optimizers"` | the table's word for that value, or for any `other`; readers take the same table backwards |
| `over = "plan.tensor"` | only where these degrees are above 1 |
| `on = "experts"`, `off = "fsdp"` | only where the run has all of these, or none of them |
| `among = {"plan.dtype" = ["fp8"]}` | only where the run has one of these values there |
| `uneven = {"file.seq" = "ways"}` | only where that does not divide by this |

The same rules, without a value, say when a run is refused (`refusals`) and what is to be seen to (`remarks`), each in
the sentence of its name, and what something is (`choices`): the first row that holds.

>>> terms = load_terms("megatron")
>>> terms.tables["context_by"]["ring"], "tensorboard" in terms.lists["harmless"]
('p2p', True)
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec

from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.written import PlanDifference
from dragonscale.tables import Strict


class Terms(Strict, frozen=True):
    """The words of one target. A `{name}` in a sentence is filled in when it is said."""

    lists: dict[str, tuple[str, ...]] = {}
    tables: dict[str, dict[str, Any]] = {}
    groups: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    sentences: dict[str, str] = {}
    differences: dict[str, dict[str, str]] = {}
    refusals: dict[str, dict[str, Any]] = {}
    choices: dict[str, list[dict[str, Any]]] = {}
    remarks: dict[str, dict[str, Any]] = {}

    def group(self, name: str, run: Any = None, /, **values: Any) -> dict[str, Any]:
        """A group of settings as a run has them, in the order of the file; `values` are names beside the run's own."""
        return self._table(self.groups[name], About(run, values))

    def _table(self, rows: Mapping[str, Any], about: "About") -> dict[str, Any]:
        return {key: self._value(row, about) for key, row in rows.items() if about.has(row)}

    def _value(self, row: Any, about: "About") -> Any:
        if isinstance(row, list):
            return [self._value(part, about) for part in row]
        if not _is_rule(row):
            return self._table(row, about) if isinstance(row, Mapping) else row
        if "choice" in row:
            return self.choice(row["choice"], about.run, **about.values)
        if "group" in row:
            return self._table(self.groups[row["group"]], about)
        if "said" in row:
            value = about.at("said").get(row["said"], "")
            value = row.get("usual", value) if value == "" else value
            return {"float": float, "int": int}[row["as"]](value) if "as" in row else value
        value = about.at(row["of"]) if "of" in row else row["set"]
        words = self.tables[row["by"]] if "by" in row else {}
        return words[str(value) if str(value) in words else "other"] if words else value

    def choice(self, name: str, run: Any = None, /, **values: Any) -> str:
        """What the first row of a choice is whose conditions hold."""
        about = About(run, values)
        return next(str(row["is"]) for row in self.choices[name] if about.has(row))

    def say(self, sentence: str, /, **values: Any) -> str:
        """A sentence with its values filled in."""
        return self.sentences[sentence].format(**values)

    def refused(self, sentence: str, /, **values: Any) -> Infeasible:
        """That the software does not run a plan."""
        return Infeasible(self.say(sentence, **values))

    def wrong(self, sentence: str, /, **values: Any) -> InputError:
        """That a config or a command says something that cannot be."""
        return InputError(self.say(sentence, **values))

    def by_formats(self, name: str) -> dict[tuple[str, str], str]:
        """A table by the formats of weights and matmuls."""
        rows = ((*formats.split(), word) for formats, word in self.tables[name].items())
        return {(weights, compute): word for weights, compute, word in rows}

    def refuse(self, run: Any, /, **values: Any) -> None:
        """Refuse a run by the first of the refusals that holds, in the sentence of its name."""
        about = About(run, values)
        for sentence, row in self.refusals.items():
            if about.has(row):
                raise self.refused(sentence, **{"run": run, "plan": run.plan, **values})

    def remark_on(self, run: Any, /, **values: Any) -> tuple[str, ...]:
        """What someone who runs it has still to see to: the sentences of the remarks that hold."""
        about = About(run, values)
        return self.notes({sentence: about.has(row) for sentence, row in self.remarks.items()}, **values)

    def notes(self, told: Mapping[str, Any], /, **values: Any) -> tuple[str, ...]:
        """The sentences whose names hold."""
        return tuple(self.say(sentence, **values) for sentence, holds in told.items() if holds)

    def difference(self, name: str, /, **values: Any) -> PlanDifference:
        """Something that the software runs otherwise."""
        return PlanDifference(**{part: text.format(**values) for part, text in self.differences[name].items()})


def _is_rule(row: Any) -> bool:
    return isinstance(row, dict) and bool({"set", "of", "said", "group", "choice"} & row.keys())


def _part(value: Any, name: str) -> Any:
    """What a record or a table has by a name; None where a table lacks it."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name)


@dataclass(frozen=True)
class About:
    """What the settings of a group are about: a run, and values by name."""

    run: Any
    values: Mapping[str, Any]

    def at(self, path: str) -> Any:
        """What is at a path such as `plan.tensor`."""
        name, *rest = path.split(".")
        value = self.values[name] if name in self.values else _part(self.run, name)
        return functools.reduce(_part, rest, value)

    def has(self, row: Any) -> bool:
        """Whether a setting is written: whether all that its rule asks for holds."""
        if not isinstance(row, Mapping):
            return True
        if "said" in row and "usual" not in row and row["said"] not in self.at("said"):
            return False
        on, off, over = ([self.at(path) for path in row.get(rule, "").split()] for rule in ("on", "off", "over"))
        among = all(self.at(path) in values for path, values in row.get("among", {}).items())
        uneven = all(self.at(path) % self.at(parts) for path, parts in row.get("uneven", {}).items())
        return among and uneven and all(on) and not any(off) and all(degree > 1 for degree in over)


@functools.cache
def load_terms(target: str) -> Terms:
    """The terms of a target by name."""
    text = (resources.files("dragonscale.exports") / "terms" / f"{target}.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Terms)
