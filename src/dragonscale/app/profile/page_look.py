"""How a profile's page looks: the pages' own style, wider, with the charts' colours by meaning, light and dark."""

from dragonscale.app.verify.html import STYLE
from dragonscale.plan.ledger import COLLECTIVES
from dragonscale.sheets.charts.theme import DARK, LIGHT, SERIES, Theme

ROLES = (
    "compute",
    "compute:1",
    "compute:-1",
    "hbm",
    "hbm:1",
    "hbm:-1",
    "tensor",
    "fsdp",
    "data",
    "recompute",
    "context",
    "expert",
    "pipe",
    "overhead",
    "overhead:1",
    "optimizer",
    "cache",
    "limit",
)
_KINDS = {
    "matmul": "compute",
    "grouped matmul": "compute:1",
    "attention": "compute:-1",
    "convolution": "compute",
    "elementwise": "hbm",
    "reduction": "hbm:-1",
    "copy": "hbm:1",
    "gather": "hbm:1",
    "memory": "hbm:1",
    "host": "overhead",
    "control": "overhead:1",
} | dict.fromkeys((*COLLECTIVES, "broadcast", "send", "recv", "communication"), "tensor")
_WORDS = {
    "attention": "compute:-1",
    "mlp": "compute",
    "experts": "expert",
    "router": "expert",
    "embedding": "fsdp",
    "head": "recompute",
    "loss": "context",
    "norm": "hbm",
    "optimizer": "optimizer",
    "forward": "compute",
    "backward": "recompute",
    "recompute": "compute:1",
    "gradient": "data",
    "update": "optimizer",
    "prefill": "compute",
    "decode": "hbm",
}


def colour_of(kind: str) -> str:
    """The colour of an op by what bounds its kind: matrix units, memory, network, host."""
    return _name(_KINDS.get(kind, "overhead"))


def colour_of_word(track: str, word: str) -> str:
    """The colour of a slice on one of our tracks."""
    if track == "exposed communication":
        return "tensor"
    if track == "idle":
        return "overhead"
    # What has no colour of its own still has the same one each time.
    return _name(_WORDS.get(word) or SERIES[sum(map(ord, word)) % len(SERIES)])


def _name(role: str) -> str:
    """A role as the name of a CSS variable."""
    return role.replace(":-", "-dark").replace(":", "-")


def _variables(theme: Theme) -> str:
    pairs = [
        f"--{_name(role)}:{theme.colour('@' + role)};--on-{_name(role)}:{theme.colour('@on:' + role)}" for role in ROLES
    ]
    return ";".join((*pairs, f"--grid:{theme.grid}"))


LOOK = f"""{STYLE}
:root {{ {_variables(LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}
main {{ max-width: 76rem; }}
h3 {{ font-size: 1rem; margin: 1.2rem 0 .3rem; }}
.whole {{ display: flex; height: 1.3rem; border-radius: 4px; overflow: hidden; background: var(--code); }} .whole i {{ display: block; }}
.legend span {{ margin-right: 1.4rem; white-space: nowrap; }} .dot {{ display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .4em; }}
.drawn {{ border: 1px solid var(--line); border-radius: 8px; background: var(--card); overflow: hidden; }}
canvas {{ display: block; width: 100%; cursor: crosshair; touch-action: pan-y; }}
canvas:focus-visible {{ outline: 2px solid var(--told); outline-offset: -2px; }}
#tip {{ position: fixed; z-index: 9; max-width: min(40rem, 90vw); padding: .45rem .7rem; border-radius: 6px; background: var(--ink); color: var(--paper); font-size: .82rem; overflow-wrap: anywhere; pointer-events: none; }}
#tip .first {{ font-weight: 600; }}
button, input {{ font: inherit; font-size: .9rem; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .2rem .7rem; }}
table.sorts th {{ cursor: pointer; white-space: nowrap; }} table.sorts td {{ overflow-wrap: anywhere; }}
th[aria-sort="ascending"]::after {{ content: " ↑"; }} th[aria-sort="descending"]::after {{ content: " ↓"; }}
.scroll {{ max-height: 34rem; overflow: auto; }} .scroll th {{ position: sticky; top: 0; background: var(--paper); }}
"""
