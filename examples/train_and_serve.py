"""A tiny LLaMA, from nothing to a conversation: tokenizer, training, a model folder, a server, the `openai` client.

    python examples/train_and_serve.py

On a machine of two cores it takes about a minute and a half. The model is trained by `dscale run train` on a mesh of
2x2x2 virtual devices, saved as a Hugging Face folder that other software reads too, planned by `dscale serve` for two
chips, and served by `dscale run serve` on two virtual devices with that plan. Then the client asks it what it learnt:
word by word, two answers at once, and the rest of a story.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy

STORY = """A small dragon wished to lift a mountain. She pulled until the sun went down, and the mountain did not move.
"You are strong," said the owl, "but you are one. Call the others, and let each of them carry a stone."
So a hundred dragons came. Each took a stone, and each waited for the one before, and the line stood still.
"You are many," said the owl, "but you talk too much. Carry while you listen, and listen while you carry."
So every dragon passed a stone to the left while the next one came from the right, and no wing was ever idle.
By noon the mountain was gone. By evening it stood again on the other side of the river, stone upon stone."""
TALKS = {
    "Who lifted the mountain?": "A hundred dragons did, and each of them carried a stone.",
    "What did the owl say?": "Carry while you listen, and listen while you carry.",
    "Why did the line stand still?": "Each dragon waited for the one before.",
    "When was the mountain gone?": "By noon. By evening it stood on the other side of the river.",
    "Are you a dragon?": "No, I am a very small model, and I know one story by heart.",
    "How long does it take?": "Count the stones, the wings, the miles of road: the longest of the three is the time.",
}
SPECIAL = ("<|begin|>", "<|end|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "<|begin|>{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}<|end|>{% "
    "endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MODEL = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
PLAN = """model = "model.json"
slice = "v5p:2x2x2"

[plan]
data = 2
fsdp = 2
tensor = 2
microbatch = 2

[run]
data = ["talks.bin"]
steps = {steps}
batch = 8
seq = 128
learning_rate = 8e-3
warmup = 10
weight_decay = 0.0
checkpoints = "checkpoints"
every = 0
"""


def tokenizer(texts: list[str]) -> Any:
    """A byte-level BPE of 512 tokens, learnt from the texts; every text begins with `<|begin|>`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made: Any = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=512, initial_alphabet=letters, special_tokens=list(SPECIAL), show_progress=False
        ),
    )
    made.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    return made


def prepare(folder: Path, steps: int) -> None:
    """What there is to learn, as tokens in many orders, with the model's config and the plan."""
    made = tokenizer([STORY, *TALKS, *TALKS.values()])
    texts = [f"{STORY}<|end|>"] + [f"<|user|>{asked}<|assistant|>{said}<|end|>" for asked, said in TALKS.items()] * 2
    draw, tokens = random.Random(0), []
    for _ in range(60):
        draw.shuffle(texts)
        tokens += [token for text in texts for token in made.encode(text).ids]
    numpy.array(tokens, "<u2").tofile(folder / "talks.bin")
    (folder / "model.json").write_text(json.dumps(MODEL))
    (folder / "plan.toml").write_text(PLAN.format(steps=steps))
    (folder / "served").mkdir()
    made.save(str(folder / "served" / "tokenizer.json"))
    said = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "chat_template": TEMPLATE}
    (folder / "served" / "tokenizer_config.json").write_text(json.dumps(said))


def dscale(*words: str, **options: Any) -> Any:
    """A command of ours, in a process of its own. The arrays are tiny: quick compilation is worth more than the
    quickest code."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=1"}
    return subprocess.Popen([sys.executable, "-m", "dragonscale", *words], env=environment, **options)


def train(folder: Path) -> None:
    words = ("--cpu", "8", "--log", "25", "--save-weights", "served")
    if dscale("run", "train", str(folder / "plan.toml"), *words, cwd=folder).wait():
        sys.exit("The training failed.")


def size(folder: Path) -> None:
    """What the planner expects of two chips, and the plan that is served."""
    traffic = ("--prompt", "16", "--output", "32", "--batch", "8")
    chips = ("--on", "h100:2", "--engine", "dragonscale", "--plan", "tp2")
    if dscale("serve", str(folder / "served"), *chips, *traffic, "--save", str(folder / "serve.toml")).wait():
        sys.exit("The plan could not be made.")


class Server:
    """`dscale run serve` on a free port, stopped as a scheduler would. What it logs goes to a file, what came of it to
    the screen."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.url, self.log = f"http://127.0.0.1:{port}", folder / "server.log"
        words = f"--name tiny --cpu 2 --port {port} --token-budget 128 --length 512 --pages 256 --lazy".split()
        with self.log.open("w") as log:
            self.process = dscale("run", "serve", str(folder / "serve.toml"), *words, stderr=log)

    def __enter__(self) -> str:
        for _ in range(1200):
            if self.process.poll() is not None:
                sys.exit(f"The server did not start: {self.log.read_text()[-1000:]}")
            try:
                with urllib.request.urlopen(f"{self.url}/ready", timeout=1):
                    return self.url
            except OSError:
                time.sleep(0.1)
        sys.exit("The server was not ready after two minutes.")

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def talk(url: str) -> int:
    """Ask everything that it learnt; how many answers were right."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    right = 0
    for asked, wanted in TALKS.items():
        stream = client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": asked}], temperature=0, max_tokens=60, stream=True
        )
        print(f"\n> {asked}\n  ", end="")
        said = ""
        for chunk in stream:
            piece = chunk.choices[0].delta.content or "" if chunk.choices else ""
            print(piece, end="", flush=True)
            said += piece
        right += said.strip() == wanted
    story = client.completions.create(
        model="tiny", prompt="A small dragon wished", temperature=0, max_tokens=80, stop="\n"
    )
    print(f"\n\nA small dragon wished{story.choices[0].text}")
    both = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "What did the owl say?"}],
        n=2,
        temperature=0.7,
        seed=1,
        max_tokens=40,
    )
    print("\nTwice, at a temperature of 0.7:", *(f"\n  {one.message.content}" for one in both.choices))
    return right


def main(steps: int = 160) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, steps)
        train(folder)
        size(folder)
        with Server(folder) as url:
            right = talk(url)
        print(f"\n{right} of {len(TALKS)} answers are what it was taught.")
        if right < len(TALKS) - 1:
            sys.exit("The tiny LLaMA has not learnt its story.")


if __name__ == "__main__":
    main()
