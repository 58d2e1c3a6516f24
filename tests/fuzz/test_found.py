"""What the fuzzer has found, each as the smallest input that broke something."""

import json
from pathlib import Path

import pytest

from tests.evidence.logs.samples import sglang_result
from tests.fuzz.command_lines import Fuzzer
from tests.fuzz.formats import FORMATS, FileFuzzer
from tests.fuzz.judging import Judge

LONG = "x" * 3000
MODEL = b'"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'
FILES = {
    "templates that are none": ("tokenizer_config.json", b'{"chat_template": [null]}'),
    "a template without a name": ("tokenizer_config.json", b'{"chat_template": [{"template": "x"}]}'),
    "a surrogate in a token": ("tokenizer_config.json", rb'{"eos_token": "\udcff"}'),
    "a long version": ("tokenizer.json", b'{"version": "' + LONG.encode() + b'", ' + MODEL),
    "a table of tensors that is a list": ("model.safetensors", (2).to_bytes(8, "little") + b"[]" + bytes(8)),
    "a tensor without a dtype": ("model.safetensors", (14).to_bytes(8, "little") + b'{"a": {"x":1}}' + bytes(8)),
    "a speaker that is a table": ("turns.jsonl", b'{"messages": [{"role": {"a": 1}, "content": "b"}]}\n'),
    "an arrival at minus zero": (
        "trace.jsonl",
        b'{"timestamp": 0, "input_length": 6, "output_length": 5}\n'
        b'{"timestamp": -0.0, "input_length": 6, "output_length": 5}\n',
    ),
    "a key that is no text": ("learn.json", b'{"version": 1, "problems": {"\xdd": {"right": 2}}}'),
    "an answer that is no text": ("answers.jsonl", b'{"key": "\xdd"}\n'),
    "checksums that are a text": ("checksums.json", b'"abc"'),
    "lengths drawn from below none": ("sglang.jsonl", json.dumps(sglang_result(random_range_ratio=-1)).encode()),
    "steps without keys": ("steps.jsonl", b'{"s": 0.5}\n'),
}


@pytest.mark.parametrize("found", FILES)
def test_a_file_that_broke_a_reader_is_read_or_refused(found: str, tmp_path: Path) -> None:
    name, content = FILES[found]
    files = FileFuzzer(tmp_path, 0)
    one = next(one for one in FORMATS if one.name == name)
    assert [problem for reader in one.readers if (problem := files.read(one, reader, content))] == []


@pytest.mark.parametrize(
    "line", [["traffic", LONG], ["import", LONG], ["chips", LONG], ["validate", "training", LONG], ["models", LONG]]
)
def test_a_long_name_floods_no_terminal(line: list[str], tmp_path: Path) -> None:
    assert not Judge(tmp_path).line(line)


def test_a_call_with_a_long_parameter_is_one_sentence(tmp_path: Path) -> None:
    assert not Fuzzer(tmp_path, 0).call("chips", {LONG: 1})


def test_a_peak_before_the_first_op_is_at_the_start(tmp_path: Path) -> None:
    """A database without its table of launches."""
    files = FileFuzzer(tmp_path, 0)
    one = next(one for one in FORMATS if one.name == "recent.sqlite")
    broken = files.originals[one.name].replace(b"CUPTI_ACTIVITY_KIND_RUNTIME", b"CUPTI_ACTIVITY_KIND_RUNTIMF")
    assert not files.read(one, one.readers[0], broken)
