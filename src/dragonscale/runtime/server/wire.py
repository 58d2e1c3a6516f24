"""What the front and its workers say to each other: msgpack messages over the socket of `dragonscale.workers`.

The front says first what a worker is to run (`WorkerOrder`), then requests and who left. A worker tells how far it is,
that it is ready, and after each step one message with all that is new.
"""

from collections.abc import Callable

import msgspec

from dragonscale.runtime.serve.requests import Emitted, GenerateRequest


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker runs. `weights` is a folder of Hugging Face files (none: random weights by `seed`). `pages` 0 takes
    those that fit into `memory`, the part of a device's memory that may be used. `role` is `both`, or `prefill` or
    `decode` of a disaggregated pair, whose pages go through files in `folder`. On a CPU there are `cpu` virtual
    devices. A `lazy` one compiles how tokens are sampled when it is first asked for. `adapters` are LoRAs by name and
    folder, whose numbers in requests begin at 1."""

    model: str
    weights: str = ""
    plan: str = "tensor=1"
    length: int = 4096
    sequences: int = 64
    tokens: int = 2048
    page: int = 16
    pages: int = 0
    memory: float = 0.9
    draft: str = ""
    draft_weights: str = ""
    draft_tokens: int = 0
    prefix_cache: bool = True
    lazy: bool = False
    tokenizer: str = ""
    seed: int = 0
    cpu: int = 0
    role: str = "both"
    folder: str = ""
    adapters: list[tuple[str, str]] = []


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A request; a prefill worker writes its pages to the file `into`, a decode worker takes them `out_of` it, after
    the `first` tokens that it was given there."""

    request: GenerateRequest
    into: str = ""
    out_of: str = ""
    first: list[int] = []


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Whoever asked is gone."""

    id: str


class Starting(msgspec.Struct, frozen=True, tag=True):
    """How far a worker is: what it does, and how much of that is done."""

    what: str
    done: int = 0
    total: int = 0


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """A worker takes requests. Sizes are of one rank; `page_bytes` of one chip."""

    pages: int
    page_bytes: int
    page: int
    ranks: int
    devices: int
    device_kind: str
    parameters: int
    load_s: float
    compile_s: float
    programs: int

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache has room for: a page of each rank is nobody's."""
        return (self.pages - 1) * self.page * self.ranks


class StepOutput(msgspec.Struct, frozen=True, tag=True):
    """All that is new after a step. The pages of a request that ends with `handover` lie in its file; those of `taken`
    ones were read."""

    emitted: list[Emitted] = []
    taken: list[str] = []
    stats: dict[str, float] = {}


class WorkerFailed(msgspec.Struct, frozen=True, tag=True):
    """Why a worker ends; `wrong` where what was asked for is at fault, so that another try would end alike."""

    why: str
    wrong: bool = False


ToWorker = Submit | Drop
Tell = Callable[[str, int, int], None]
"""What a worker says of its start: what it does, how much of that is done, and of how much."""
FromWorker = Starting | WorkerReady | StepOutput | WorkerFailed
encode = msgspec.msgpack.Encoder().encode
