"""Commands out of shell text: scripts as projects publish them, pasted lines, and anything at all."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.exports.imported import Source
from dragonscale.exports.shell import read_commands


def words(text: str) -> list[str]:
    return read_commands(text)[-1].words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm serve m -tp 8", ["vllm", "serve", "m", "-tp", "8"]),
        ("CUDA_VISIBLE_DEVICES=0,1 vllm serve m", ["vllm", "serve", "m"]),
        ("$ vllm serve m \\\n    --dtype auto", ["vllm", "serve", "m", "--dtype", "auto"]),
        ("export TP=4\nvllm serve m -tp $TP", ["vllm", "serve", "m", "-tp", "4"]),
        ("vllm serve m -tp ${TP:-2}", ["vllm", "serve", "m", "-tp", "2"]),
        ("N=4; vllm serve m -tp $((N * 2))", ["vllm", "serve", "m", "-tp", "8"]),
        ("ARGS=(\n  --a 1  # one\n  --b\n)\nx.py ${ARGS[@]}", ["x.py", "--a", "1", "--b"]),
        ('OPTS="--a 1 --b 2"\nx.py $OPTS', ["x.py", "--a", "1", "--b", "2"]),
        ('A=(--a 1)\nA+=(--b 2)\nx.py "${A[@]}"', ["x.py", "--a", "1", "--b", "2"]),
        ("nohup vllm serve m > log.txt 2>&1 &", ["vllm", "serve", "m"]),
        (
            "docker run --gpus all -p 8000:8000 --ipc=host vllm/vllm-openai:latest --model m",
            ["vllm", "serve", "--model", "m"],
        ),
        (
            "docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server --tp 8",
            ["python3", "-m", "sglang.launch_server", "--tp", "8"],
        ),
        (
            'vllm serve m --speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\'',
            ["vllm", "serve", "m", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'],
        ),
        (
            "srun --ntasks-per-node=1 torchrun --nproc_per_node 8 --rdzv_id 1 pretrain_gpt.py --bf16",
            ["pretrain_gpt.py", "--bf16"],
        ),
        ("python -m torch.distributed.run --nproc_per_node=8 train.py --x 1", ["train.py", "--x", "1"]),
        ("bash -c 'vllm serve m -tp 2'", ["vllm", "serve", "m", "-tp", "2"]),
        ("# a <<E b\nvllm serve 'a <<E b'\n", ["vllm", "serve", "a <<E b"]),
        ("cat > x <<'E'\nvllm serve no\nE\nvllm serve m", ["vllm", "serve", "m"]),
        ("if [ -z $A ]; then\n  echo no\nfi\nvllm serve m", ["vllm", "serve", "m"]),
    ],
)
def test_words_of_a_command(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_how_many_processes() -> None:
    script = (
        "#SBATCH --nodes=16\n#SBATCH --gpus-per-node=8\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 "
        "pretrain_gpt.py --bf16"
    )
    assert read_commands(script)[-1].processes == 128
    assert read_commands("torchrun --nproc-per-node 4 train.py")[0].processes == 4
    assert read_commands("train.py")[0].processes == 0


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab $(){}[]\"'\\\n#=<-:;&|`@+*/1 TP"), max_size=80))
def test_any_text_is_read(text: str) -> None:
    for command in Source.of(text + " ").commands:
        assert command.words


@pytest.mark.parametrize(
    "piece",
    ["(\n", "a=(\n", " ", "'#", "\n", "# \n", "<<A ", "(", "$((", "${", "<<A\n", "\\\n", "$A", '"', "A=(", "a;b&&"],
)
def test_long_text_takes_no_time(piece: str) -> None:
    start = time.process_time()
    for text in (piece * 4_000, f"vllm serve m\n{piece * 4_000}"):
        _ = Source(text).kept, Source(text).commands
    assert time.process_time() - start < 5
