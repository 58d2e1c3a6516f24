"""A tiny LLaMA learns a fable by heart, on a mesh of 2x2x2 virtual devices, in a minute on two CPU cores.

The same plan that the planner judges for eight v5p chips is compiled by XLA for eight virtual devices of this machine:
batch and weights split two ways each (`data`, `fsdp`), heads and hidden dims two ways (`tensor`). Then the weights are
read back from the checkpoint onto one device, which writes on from the first words.

    python examples/train_tiny.py
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

# XLA looks at these when JAX is loaded. The arrays are tiny: quick compilation is worth more than the quickest code.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=1")

import jax
import jax.numpy as jnp
import msgspec
import numpy

from dragonscale.commands.run.run_train import TrainRun
from dragonscale.models import load_model
from dragonscale.runtime.checkpoint import load_weights
from dragonscale.runtime.decode import decode, empty_cache, prefill
from dragonscale.runtime.lines import PassSetting
from dragonscale.runtime.numerics import numerics_of
from dragonscale.runtime.safetensors import SafeTensors
from dragonscale.runtime.train.loop import train
from dragonscale.runtime.train.settings import Order, read_order

FABLE = """
A small dragon wished to lift a mountain. She pulled until the sun went down, and the mountain did not move.
"You are strong," said the owl, "but you are one. Call the others, and let each of them carry a stone."
So a hundred dragons came. Each took a stone, and each waited for the one before, and the line stood still.
"You are many," said the owl, "but you talk too much. Carry while you listen, and listen while you carry."
So every dragon passed a stone to the left while the next one came from the right, and no wing was ever idle.
By noon the mountain was gone. By evening it stood again on the other side of the river, stone upon stone.
"How did you know how long it would take?" asked the small dragon. "I counted the stones," said the owl,
"and I counted the wings, and I measured the road. The longest of the three is the time. All else is noise."
"""
MODEL = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
PLAN = "data=2,fsdp=2,tensor=2,microbatch=2"
STEPS = 160
PROMPT = "A small dragon wished"


def prepared(folder: Path) -> Order:
    """The model, the text as one token a byte, and what to run."""
    (folder / "model.json").write_text(json.dumps(MODEL))
    numpy.frombuffer(FABLE.strip().encode("ascii") * 97, numpy.uint8).astype("<u2").tofile(folder / "fable.bin")
    settings = {
        "data": str(folder / "fable.bin"),
        "steps": STEPS,
        "batch": 8,
        "seq": 128,
        "learning_rate": 8e-3,
        "warmup": 10,
        "weight_decay": 0.0,
        "checkpoints": str(folder / "checkpoints"),
        "every": 0,
        "save_weights": str(folder / "trained"),
    }
    return read_order(PLAN, str(folder / "model.json"), "v5p:2x2x2", settings)


def written(order: Order, prompt: str, count: int) -> str:
    """What the trained model writes after a prompt, the likeliest byte each time, on one device."""
    program, numerics = load_model(order.model).program(), numerics_of(order.model)
    params = load_weights(SafeTensors(order.run.save_weights), program, numpy.float32)
    first = jnp.asarray([list(prompt.encode("ascii"))])
    length = first.shape[1]

    @jax.jit
    def write(params: Any) -> jax.Array:
        cache = empty_cache(program, 1, length + count, jnp.float32)
        logits, cache = prefill(params, program, first, jnp.array([length]), cache, PassSetting(numerics))

        def one(carry: Any, place: jax.Array) -> tuple[Any, jax.Array]:
            logits, cache = carry
            token = jnp.argmax(logits, -1)
            return decode(params, program, token, place[None], cache, PassSetting(numerics)), token[0]

        _, tokens = jax.lax.scan(one, (logits, cache), length + jnp.arange(count))
        return tokens

    return prompt + bytes(write(params).tolist()).decode("ascii", "replace")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        order = prepared(Path(folder))

        def watch(line: dict[str, Any]) -> None:
            if line["step"] in (1, STEPS) or line["step"] % 20 == 0:
                print(f"step {line['step']:>4}  loss {line['loss']:.3f}  {1e3 * line['step_s']:.0f} ms", flush=True)

        result = train(order, watch)
        print("\n" + str(TrainRun(**msgspec.structs.asdict(result))).replace(folder + "/", "") + "\n")
        print(f"What it writes after {PROMPT!r}:\n\n{written(order, PROMPT, 110)}")
        assert result.loss is not None
        if result.loss > 1.0:
            sys.exit("The tiny LLaMA has not learnt its fable.")


if __name__ == "__main__":
    main()
