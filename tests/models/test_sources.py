"""Models from where people have them: the Hub's cache, folders, GGUF and safetensors headers, objects."""

import json
import os
import struct
import subprocess
import sys

import pytest

from dragonscale.errors import InputError
from dragonscale.installing import install_hint
from dragonscale.models import count_parameters, hub, load_config, load_model
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import load_chip
from dragonscale.serving.engine.checkpoint import own_formats, stored_in

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
}


def refusal(source, **options) -> str:
    with pytest.raises(InputError) as caught:
        load_model(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- files made here, byte by byte


def gguf_string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf_value(value) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_string(value)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_string, value))
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 4, len(value)) + b"".join(struct.pack("<I", v) for v in value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<II", 4, value)


def write_gguf(path, keys: dict, tensors: list[tuple[str, tuple[int, ...], int]]):
    body = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    body += b"".join(gguf_string(key) + gguf_value(value) for key, value in keys.items())
    for name, shape, kind in tensors:
        body += gguf_string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        body += struct.pack("<IQ", kind, 0)
    path.write_bytes(body)
    return path


Q4_K, Q6_K, F32, MXFP4, BF16 = 12, 14, 0, 39, 30


def llama_gguf(path, layers=2, d=256, ff=512, heads=4, kv=2, vocab=1000, experts=0):
    size = d // heads
    keys = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "llama.block_count": layers,
        "llama.context_length": 4096,
        "llama.embedding_length": d,
        "llama.feed_forward_length": ff,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": [kv] * layers,
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(vocab)],
    }
    more = {"llama.expert_count": experts, "llama.expert_used_count": 2} if experts else {}
    tensors = [("token_embd.weight", (d, vocab), Q4_K), ("output.weight", (d, vocab), Q6_K)]
    tensors += [("output_norm.weight", (d,), F32), ("rope_freqs.weight", (size // 2,), F32)]
    for n in range(layers):
        tensors += [(f"blk.{n}.{norm}_norm.weight", (d,), F32) for norm in ("attn", "ffn")]
        tensors += [(f"blk.{n}.attn_{one}.weight", (d, d), Q4_K) for one in ("q", "output")]
        tensors += [(f"blk.{n}.attn_{one}.weight", (d, kv * size), Q6_K) for one in ("k", "v")]
        tail, end = ("_exps", (experts,)) if experts else ("", ())
        tensors += [
            (f"blk.{n}.ffn_gate{tail}.weight", (d, ff, *end), Q4_K),
            (f"blk.{n}.ffn_up{tail}.weight", (d, ff, *end), Q4_K),
        ]
        tensors += [(f"blk.{n}.ffn_down{tail}.weight", (ff, d, *end), Q6_K)]
        tensors += [(f"blk.{n}.ffn_gate_inp.weight", (d, experts), F32)] if experts else []
    return write_gguf(path, keys | more, tensors), tensors


def elements(tensors) -> int:
    total = 0
    for name, shape, _ in tensors:
        count = 1
        for side in shape:
            count *= side
        total += 0 if name.startswith("rope_") else count
    return total


def write_safetensors(path, tensors: dict[str, tuple[str, tuple[int, ...], int]]):
    header, place = {}, 0
    for name, (kind, shape, width) in tensors.items():
        held = width
        for side in shape:
            held *= side
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [place, place + held]}
        place += held
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + place)  # sparse: nothing of it is read
    return path


def llama_tensors(kind="BF16", width=2, d=64, ff=96, kv=32, vocab=100):
    found = {"model.embed_tokens.weight": ("BF16", (vocab, d), 2), "lm_head.weight": ("BF16", (vocab, d), 2)}
    found["model.norm.weight"] = ("BF16", (d,), 2)
    for n in range(2):
        for name, shape in (
            ("self_attn.q_proj", (d, d)),
            ("self_attn.k_proj", (kv, d)),
            ("self_attn.v_proj", (kv, d)),
            ("self_attn.o_proj", (d, d)),
            ("mlp.gate_proj", (ff, d)),
            ("mlp.up_proj", (ff, d)),
            ("mlp.down_proj", (d, ff)),
        ):
            found[f"model.layers.{n}.{name}.weight"] = (kind, shape, width)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"model.layers.{n}.{name}.weight"] = ("BF16", (d,), 2)
    return found


# ---- GGUF


def test_a_gguf_header_is_a_model_with_its_formats(tmp_path):
    path, tensors = llama_gguf(tmp_path / "tiny-Q4_K_M.gguf")
    model = load_model(path)
    assert count_parameters(model).total == elements(tensors)  # the file's own tensors are the witness
    assert not [note for note in model.notes if "hold" in note]
    assert model.weight_dtypes == {"attention": "int4", "mlp": "int4"}
    assert model.stored["Q4_K"] == 144 * sum(s[0] * s[1] // 256 for _, s, kind in tensors if kind == Q4_K)
    assert stored_in(model) == "int4"
    assert model.context == 4096
    assert model.name == "tiny-Q4_K_M"


def test_experts_make_a_llama_a_mixtral(tmp_path):
    path, tensors = llama_gguf(tmp_path / "moe.gguf", experts=8)
    counts = count_parameters(load_model(path))
    assert counts.total == elements(tensors)
    assert counts.active < counts.total / 2


def test_shards_of_a_gguf_are_read_together(tmp_path):
    whole, tensors = llama_gguf(tmp_path / "whole.gguf")
    keys = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.embedding_length": 256,
        "llama.feed_forward_length": 512,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
    }
    write_gguf(tmp_path / "x-00001-of-00002.gguf", keys, tensors[:5])
    assert "1 are here" in " ".join(load_model(tmp_path / "x-00001-of-00002.gguf").notes)
    write_gguf(tmp_path / "x-00002-of-00002.gguf", {}, tensors[5:])
    both = load_model(tmp_path / "x-00001-of-00002.gguf")
    assert both.stored == load_model(whole).stored
    assert "here" not in " ".join(both.notes)


def test_a_gguf_of_an_unknown_architecture_can_be_read_as_a_family(tmp_path):
    path, tensors = llama_gguf(tmp_path / "new.gguf")
    path.write_bytes(
        path.read_bytes().replace(gguf_string("llama"), gguf_string("lemur")).replace(b"llama.", b"lemur.")
    )
    assert "no GGUF architecture 'lemur'" in refusal(path)
    assert count_parameters(load_model(path, family="llama")).total == elements(tensors)


@pytest.mark.parametrize("cut", [0, 3, 4, 10, 24, 60, 400, -1])
def test_a_broken_gguf_is_one_sentence(tmp_path, cut):
    path, _ = llama_gguf(tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes()[:cut])
    assert "GGUF" in refusal(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60) + b"\0" * 50)
    assert "entries" in refusal(path)


# ---- safetensors


def test_a_folder_of_safetensors_says_formats_and_bytes(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    write_safetensors(tmp_path / "model.safetensors", llama_tensors())
    model = load_model(tmp_path)
    assert model.stored == {"BF16": 2 * count_parameters(model).total}
    assert model.notes == ()
    assert load_model(tmp_path / "model.safetensors").stored == model.stored
    fewer = dict(list(llama_tensors().items())[:-1])
    write_safetensors(tmp_path / "model.safetensors", fewer)
    assert f"The files hold {count_parameters(model).total - 64:,} numbers" in load_model(tmp_path).notes[0]


def test_files_say_what_a_config_does_not(tmp_path):
    """fp8 in the files, nothing of it in the config: `serve` takes the checkpoint's own format."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"torch_dtype": "float32"}))
    write_safetensors(tmp_path / "model.safetensors", llama_tensors("F8_E4M3", 1))
    model = load_model(tmp_path)
    assert model.dtype == "bf16"
    assert model.weight_dtypes == {"attention": "fp8", "mlp": "fp8"}
    assert own_formats("vllm", load_chip("h100"), model).weights == "fp8"


def test_awq_in_fp16_is_served_as_it_is():
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
    model = load_config(LLAMA | {"torch_dtype": "float16", "quantization_config": awq})
    formats = own_formats("vllm", load_chip("h100"), model)
    assert (formats.weights, formats.kv) == ("int4", "fp16")


def test_an_index_whose_files_are_not_here(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    write_safetensors(tmp_path / "model-00001-of-00003.safetensors", llama_tensors())
    index = {"weight_map": {str(n): f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load_model(tmp_path).notes == ("Of 3 files 1 are here; the bytes are theirs.",)
    assert load_model(tmp_path / "model.safetensors.index.json").stored


@pytest.mark.parametrize(
    "content",
    [b"", b"\x01", struct.pack("<Q", 2**62) + b"{}", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 4) + b"oops"],
)
def test_a_broken_safetensors_is_one_sentence(tmp_path, content):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "model.safetensors").write_bytes(content)
    assert "safetensors" in refusal(tmp_path)


def test_weights_without_a_config_are_refused(tmp_path):
    path = write_safetensors(tmp_path / "model.safetensors", llama_tensors())
    assert "none beside it" in refusal(path)


# ---- the Hub


def make_cached(root, repo: str, config: dict, revision="main", commit="a" * 40):
    folder = root / f"models--{repo.replace('/', '--')}"
    (folder / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / revision).write_text(commit)
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "blobs" / commit).write_text(json.dumps(config))
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / commit / "config.json").symlink_to(folder / "blobs" / commit)


def test_the_hubs_cache_is_read_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    make_cached(tmp_path, "acme/rocket-1b", LLAMA)
    make_cached(tmp_path, "Qwen/Qwen3-32B", LLAMA)  # the cache's is the user's own: before our preset
    model = load_model("acme/rocket-1b")
    assert (model.name, model.n_layers, model.notes) == ("acme/rocket-1b", 2, ())
    assert load_model("https://huggingface.co/acme/rocket-1b").n_layers == 2
    assert load_model("Qwen/Qwen3-32B").n_layers == 2
    make_cached(tmp_path, "acme/rocket-1b", LLAMA | {"num_hidden_layers": 3}, "v2", "b" * 40)
    assert load_model("acme/rocket-1b@v2").n_layers == 3
    assert load_model("acme/rocket-1b").n_layers == 2
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "elsewhere"))
    assert load_model("Qwen/Qwen3-32B").n_layers == 64


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama3.1-70b"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
    ],
)
def test_a_presets_repository_needs_no_network(name, preset):
    model = load_model(name)
    assert model.name == preset
    assert model.notes == (f"{name!r} is read as the preset {preset}.",)


@pytest.mark.parametrize(
    ("name", "part", "dtype", "block", "activations"),
    [
        ("Qwen/Qwen3-32B-FP8", "mlp", "fp8", 128, ""),
        ("qwen3-32b-fp8", "mlp", "fp8", 128, ""),
        ("llama3-70b-fp8", "mlp", "fp8", 0, "fp8"),
        ("RedHatAI/Qwen3-32B-FP8-dynamic", "mlp", "fp8", 0, "fp8"),
        ("RedHatAI/Qwen3-32B-FP8-block", "mlp", "fp8", 128, "fp8"),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16", "mlp", "int4", 0, "bf16"),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "experts", "fp8", 0, ""),
        ("nvidia/DeepSeek-R1-FP4", "experts", "nvfp4", 0, ""),
        ("Qwen/Qwen3-32B-AWQ", "mlp", "int4", 0, ""),
    ],
)
def test_a_quantised_checkpoint_is_read_by_its_name(name, part, dtype, block, activations):
    model = load_model(name)
    assert model.weight_dtypes[part] == dtype
    assert (model.quantization.block, model.quantization.activations) == (block, activations)
    assert load_model(model.name).weight_dtypes == model.weight_dtypes, "its name means it again"
    assert "/" not in name or "as such checkpoints are published" in model.notes[0]
    kept = {"attention"} & {*model.weight_dtypes}
    assert bool(kept) == (name.split("/")[0] not in ("meta-llama", "nvidia")), "some leave attention alone"


def test_a_name_that_says_a_format_is_noted():
    """Without its config nobody knows how a checkpoint is quantised; the preset is not."""
    assert "not in the fp8 that the name says" in load_model("somebody/Qwen3-32B-FP8-Dynamic").notes[0]
    assert "says" not in load_model("openai/gpt-oss-120b").notes[0]


class _Hub:
    """A stand-in for huggingface_hub that cannot fetch, for a reason."""

    def __init__(self, error: str) -> None:
        self.error = type(error, (Exception,), {})
        self.utils = self.logging = self

    def disable_progress_bars(self) -> None: ...

    def set_verbosity_error(self) -> None: ...

    def hf_hub_download(self, *_args, **_options) -> str:
        raise self.error("a paragraph\nof text")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("GatedRepoError", "gated"),
        ("RepositoryNotFoundError", "no such repository"),
        ("EntryNotFoundError", "no config.json"),
        ("LocalEntryNotFoundError", "cannot be reached"),
        ("ConnectError", "cannot be reached"),
        ("Unreachable", "cannot be reached"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(monkeypatch, error, said):
    stub = _Hub(error)
    monkeypatch.setitem(sys.modules, "huggingface_hub", stub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils", stub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils.logging", stub)
    monkeypatch.setattr(hub, "reachable", lambda: error != "Unreachable")
    assert said in refusal("acme/rocket-2b")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    said = refusal("mistralai/Mixtral-8x9B-v0.1")
    assert install_hint("hub") in said
    assert "'mixtral-8x7b'" in said
    assert "mistral-7b" not in said


# ---- what is assumed


def test_fields_that_cannot_matter_are_noted_and_others_named_all_at_once(tmp_path):
    harmless = {
        "swa_rope_theta": 10000,
        "shared_expert_intermediate_size": 0,
        "think_token_id": 7,
        "my_flag": False,
        "note": None,
        "mtp_share_embed": True,
        "router_init_std": 0.1,
        "weights_version": "2.1",
        "image_grid": 4,
        "gate_act": "silu",
    }
    model = load_config(LLAMA | harmless)
    assert count_parameters(model) == count_parameters(load_config(LLAMA))
    assert all(name in model.notes[0] for name in harmless)
    said = refusal(_written(tmp_path, LLAMA | harmless | {"num_loops": 3, "memory_width": 64}))
    assert "num_loops = 3" in said
    assert "memory_width = 64" in said
    assert "`--assume num_loops=ignore,memory_width=ignore` counts without them" in said
    assert "theta" not in said
    path = _written(tmp_path, LLAMA | {"num_loops": 3, "memory_width": 64})
    assumed = load_model(path, assume={"num_loops": "ignore", "memory_width": 0})
    assert count_parameters(assumed) == count_parameters(load_config(LLAMA))
    assert load_model(f"{path}?num_loops=ignore&memory_width=ignore&num_hidden_layers=5").n_layers == 5
    assert "no field 'loops'" in refusal(path, assume={"loops": "ignore"})


def _written(folder, config):
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_a_new_type_is_read_as_its_kin(tmp_path):
    new = LLAMA | {"model_type": "lemur", "architectures": ["LemurForCausalLM"]}
    model = load_config(new)
    assert count_parameters(model) == count_parameters(load_config(LLAMA))
    assert "read as that" in model.notes[0]
    experts = {
        "model_type": "qwen9_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
        "head_dim": 16,
    }
    assert "those of qwen3_moe" in load_config(LLAMA | experts).notes[0]
    forced = load_config(new, family="qwen3")
    assert count_parameters(forced).total > count_parameters(model).total  # norms of queries and keys
    assert forced.layers[0].mixer.qk_norm == "head"
    assert "no family 'lamma'" in refusal(_written(tmp_path, new), family="lamma")


def test_a_tower_that_is_not_understood_costs_the_tower_alone():
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": 4,
        "image_size": 16,
        "num_channels": 3,
    }
    text = LLAMA | {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 8}
    plain = load_config({"model_type": "gemma3", "text_config": text, "vision_config": vision})
    odd = load_config({"model_type": "gemma3", "text_config": text, "vision_config": vision | {"foveas": 3}})
    assert plain.extras
    assert not odd.extras
    assert count_parameters(plain).total == count_parameters(odd).total
    assert "foveas = 3" in odd.notes[0]
    other = load_config({"model_type": "seer", "text_config": LLAMA, "vision_config": vision, "image_size": 3})
    assert count_parameters(other).total == count_parameters(load_config(LLAMA)).total
    assert "language model alone" in other.notes[0]


# ---- what is no model


def test_objects_pass_and_other_things_do_not():
    model = load_model("llama3-8b")
    assert load_model(model) is model
    with pytest.raises(InputError, match="a name, a path or a Transformer"):
        load_model(7)  # pyright: ignore


@pytest.mark.parametrize("ending", ["json", "toml", "gguf", "safetensors", "txt"])
def test_pipes_and_devices_are_refused_at_once(tmp_path, ending):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    pipe, device = tmp_path / f"pipe.{ending}", tmp_path / f"zero.{ending}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    code = (
        "import sys; from dragonscale.models import load_model\nfor p in sys.argv[1:]:\n  try: load_model(p)\n  "
        "except ValueError as e: print(e)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, pipe, device], capture_output=True, text=True, timeout=60, check=True
    )
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("name", ["</script>", 'a"b', "a\x1b[31m", "a'b", ""])
def test_names_that_would_break_what_they_are_written_into(tmp_path, name):
    path = tmp_path / "mine.toml"
    path.write_text(f"base = 'llama3-8b'\nname = {json.dumps(name)}\n")
    assert "a name has" in refusal(path)
    inside = load_config(LLAMA | {"_name_or_path": name})
    assert inside.name.isprintable()
    assert not set(inside.name) & set("<>\"'")


def test_arithmetic_comes_from_the_same_place(tmp_path):
    """RoPE and eps of whatever a model is read from, for what is run in JAX."""
    path, _ = llama_gguf(tmp_path / "tiny.gguf")
    assert model_fields(path)["rope_theta"] == 10000.0
    assert model_fields("llama3-8b?rope_theta=7")["rope_theta"] == 7
    assert model_fields("meta-llama/Llama-3.1-8B")["model_type"] == "llama"
    (tmp_path / "mine.toml").write_text('base = "llama3-8b"\nrms_norm_eps = 0.5\n')
    fields = model_fields(tmp_path / "mine.toml")
    assert (fields["rms_norm_eps"], fields["num_hidden_layers"]) == (0.5, 32)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert model_fields(tmp_path) == model_fields(tmp_path / "config.json") == LLAMA
    write_safetensors(tmp_path / "model.safetensors", llama_tensors())
    assert model_fields(tmp_path / "model.safetensors") == LLAMA


def test_answers_carry_what_was_made_of_the_config(tmp_path):
    from dragonscale.commands.serve.serve_question import ServeQuestion
    from dragonscale.commands.serve.serve_question import read_question as read_serve

    path = _written(tmp_path, LLAMA | {"model_type": "lemur", "max_position_embeddings": 8192})
    asked = read_serve(ServeQuestion(model=str(path), on="h100:1"))
    assert "its fields are those of llama" in asked.notes[0]


def test_qwens_norms_are_there_whether_its_config_says_so_or_not() -> None:
    """Qwen3-Coder-480B-A35B's config.json has `use_qk_norm`; its name says 480B and 35B active."""
    sizes = {"hidden_size": 6144, "moe_intermediate_size": 2560, "num_attention_heads": 96, "num_key_value_heads": 8}
    more = {"head_dim": 128, "num_experts": 160, "num_hidden_layers": 62, "vocab_size": 151936}
    config = {"model_type": "qwen3_moe", **sizes, **more}
    assert count_parameters(load_config(config | {"use_qk_norm": True})).total == 480_154_875_392
    assert count_parameters(load_config(config)).total == 480_154_875_392
    with pytest.raises(InputError, match="use_qk_norm"):
        load_config(config | {"use_qk_norm": False})
