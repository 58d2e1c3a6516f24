"""What a target says in its own words, as data: `terms/NAME.toml`, beside the tables of keys.

A file has lists and tables of words (names that change nothing of a plan, spellings, formats), groups of settings,
texts, the sentences of its notes and refusals, and what it runs differently from a plan.

>>> terms = load_terms("megatron")
>>> terms.tables["context_by"]["ring"], "mixtral" in terms.lists["llama_types"]
('p2p', True)
"""

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from operator import attrgetter
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

    def group(self, name: str, run: Any = None) -> dict[str, Any]:
        """A group of settings: constants as they stand; for `{of = "plan.tensor"}` what the run has there, by the words
        of the table `by` where it names one."""
        return {key: self._value(value, run) for key, value in self.groups[name].items()}

    def _value(self, value: Any, run: Any) -> Any:
        if not isinstance(value, dict) or "of" not in value:
            return value
        said = attrgetter(value["of"])(run)
        return self.tables[value["by"]][said] if "by" in value else said

    def say(self, sentence: str, /, **values: Any) -> str:
        """A sentence with its values filled in."""
        return self.sentences[sentence].format(**values)

    def refused(self, sentence: str, /, **values: Any) -> Infeasible:
        """That the software does not run a plan."""
        return Infeasible(self.say(sentence, **values))

    def wrong(self, sentence: str, /, **values: Any) -> InputError:
        """That a config or a command says something that cannot be."""
        return InputError(self.say(sentence, **values))

    def refuse(self, checks: Mapping[str, Any], /, **values: Any) -> None:
        """Refuse a plan by the first check that holds, in the sentence of its name."""
        for sentence, holds in checks.items():
            if holds:
                raise self.refused(sentence, **values)

    def difference(self, name: str, /, **values: Any) -> PlanDifference:
        """Something that the software runs otherwise."""
        return PlanDifference(**{part: text.format(**values) for part, text in self.differences[name].items()})


@functools.cache
def load_terms(target: str) -> Terms:
    """The terms of a target by name."""
    text = (resources.files("dragonscale.exports") / "terms" / f"{target}.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Terms)
