#!/usr/bin/env python3
"""Writes tiny models with random weights, one of every supported family, for the tests.

    tools/make_test_models.py --family qwen3 --dtype bf16 --shards 2 --seed 7 --out DIR

Without --family, every family is written to DIR/<family>. Standard library only. The values come
from --seed alone: the same seed gives the same bytes on every machine, and the dtypes of one seed
are roundings of the same values. Tests that only need the loader to run may use any of these;
tests of figures use --golden, which adds golden.json (see tiny_forward.py).
"""

import argparse
import array
import json
import os
import random
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "train_model"), os.path.join(HERE, "test_models")]

import safetensors_io  # noqa: E402
import tiny_forward  # noqa: E402
import tiny_tokenizers  # noqa: E402

COMMON = {"hidden_act": "silu", "num_hidden_layers": 2, "max_position_embeddings": 4096,
          "initializer_range": 0.02, "use_cache": True}

# What each family adds to COMMON. Dimensions are the smallest that still tell the families apart.
FAMILIES = {
    # One key-value head per query head, untied output, SentencePiece-style tokenizer.
    "llama2": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 160, "num_attention_heads": 2, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None,
        "tie_word_embeddings": False, "attention_bias": False},
    # Grouped heads, tied output; the scaling's three bands all occur at this original length.
    "llama3": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128,
        "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 256},
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False},
    # Biases on queries, keys and values; tied output.
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 128,
        "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": False,
        "sliding_window": 4096, "max_window_layers": 2, "tie_word_embeddings": True},
    # Norms on queries and keys; head_dim is not hidden_size / heads; untied output; three layers.
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64,
        "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "num_hidden_layers": 3, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "rope_scaling": None, "use_sliding_window": False, "sliding_window": None,
        "attention_bias": False, "tie_word_embeddings": False},
}

DTYPE_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=sorted(FAMILIES), help="default: every family")
    parser.add_argument("--dtype", choices=sorted(DTYPE_NAMES), default="f32")
    parser.add_argument("--shards", type=int, default=1, help="weight files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden", action="store_true", help="also write golden.json (slower)")
    parser.add_argument("--out", required=True, help="folder to write to")
    options = parser.parse_args()
    if options.shards < 1:
        parser.error("--shards must be at least 1")
    for family in [options.family] if options.family else sorted(FAMILIES):
        out = options.out if options.family else os.path.join(options.out, family)
        write_model(family, options, out)


def write_model(family, options, out):
    os.makedirs(out, exist_ok=True)
    tokenizer = tiny_tokenizers.FILES[family]()
    config = dict(COMMON, **FAMILIES[family])
    config.update(vocab_size=tokenizer.vocab_size, bos_token_id=tokenizer.bos_id,
                  eos_token_id=tokenizer.eos_ids[0], torch_dtype=DTYPE_NAMES[options.dtype])
    values = random_weights(config, family, options.seed)
    tensors = {name: encoded(content, options.dtype) for name, content in values.items()}
    shapes = weight_shapes(config)
    typed = {name: (options.dtype.upper(), shapes[name], tensors[name]) for name in shapes}
    write_weights(out, typed, options.shards)
    write_json(out, "config.json", config)
    write_json(out, "generation_config.json",
               {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_ids})
    for name, content in tokenizer.files.items():
        write_json(out, name, content)
    if options.golden:
        rounded = {name: decoded(content, options.dtype) for name, content in tensors.items()}
        write_json(out, "golden.json", tiny_forward.golden(config, rounded, tokenizer))


def weight_shapes(config):
    """{tensor name: shape}, in the order in which the files hold them."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_key_value_heads"] * head_dim
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        shapes.update({"model.layers.%d.%s" % (layer, name): shape for name, shape in (
            ("input_layernorm.weight", (hidden,)),
            ("self_attn.q_proj.weight", (queries, hidden)),
            ("self_attn.k_proj.weight", (keys, hidden)),
            ("self_attn.v_proj.weight", (keys, hidden)),
            ("self_attn.o_proj.weight", (hidden, queries)),
            ("post_attention_layernorm.weight", (hidden,)),
            ("mlp.gate_proj.weight", (inner, hidden)),
            ("mlp.up_proj.weight", (inner, hidden)),
            ("mlp.down_proj.weight", (hidden, inner)))})
        if config["model_type"] == "qwen2":
            shapes.update({"model.layers.%d.self_attn.%s_proj.bias" % (layer, part): (size,)
                           for part, size in (("q", queries), ("k", keys), ("v", keys))})
        if config["model_type"] == "qwen3":
            shapes.update({"model.layers.%d.self_attn.%s_norm.weight" % (layer, part): (head_dim,)
                           for part in ("q", "k")})
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def random_weights(config, family, seed):
    """{name: floats}: matrices of about unit gain, norms near one, small biases."""
    values = {}
    for name, shape in weight_shapes(config).items():
        draw = random.Random("%s/%s/%d" % (family, name, seed)).random
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        if name.endswith("norm.weight"):
            values[name] = [1.0 + 0.4 * (draw() - 0.5) for _ in range(count)]
        elif name.endswith(".bias"):
            values[name] = [draw() - 0.5 for _ in range(count)]
        else:
            reach = 2.0 * (3.0 / shape[1]) ** 0.5
            values[name] = [reach * (draw() - 0.5) for _ in range(count)]
    return values


def encoded(values, dtype):
    """Little-endian bytes; bfloat16 is rounded to nearest, ties to even."""
    if dtype == "f16":
        return struct.pack("<%de" % len(values), *values)
    singles = array.array("f", values)
    if sys.byteorder == "big":
        singles.byteswap()
    if dtype == "f32":
        return singles.tobytes()
    bits = struct.unpack("<%dI" % len(values), singles.tobytes())
    return struct.pack("<%dH" % len(bits),
                       *[(b + 0x7FFF + ((b >> 16) & 1)) >> 16 for b in bits])


def decoded(content, dtype):
    """The exact values that `encoded` kept."""
    if dtype == "bf16":
        halves = struct.unpack("<%dH" % (len(content) // 2), content)
        content = struct.pack("<%dI" % len(halves), *[h << 16 for h in halves])
    letter, size = ("e", 2) if dtype == "f16" else ("f", 4)
    return list(struct.unpack("<%d%s" % (len(content) // size, letter), content))


def write_weights(out, tensors, shards):
    """model.safetensors, or `shards` files of about equal size and their index."""
    if shards == 1:
        safetensors_io.write(os.path.join(out, "model.safetensors"), tensors, {"format": "pt"})
        return
    total, passed = sum(len(t[2]) for t in tensors.values()), 0
    parts = [{} for _ in range(shards)]
    for name, tensor in tensors.items():
        parts[min(shards - 1, passed * shards // total)][name] = tensor
        passed += len(tensor[2])
    weight_map = {}
    for at, part in enumerate(parts):
        name = "model-%05d-of-%05d.safetensors" % (at + 1, shards)
        safetensors_io.write(os.path.join(out, name), part, {"format": "pt"})
        weight_map.update(dict.fromkeys(part, name))
    write_json(out, "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_json(out, name, content):
    with open(os.path.join(out, name), "w", encoding="utf-8") as f:
        if isinstance(content, str):
            f.write(content)
        else:
            json.dump(content, f, indent=1, ensure_ascii=False)
            f.write("\n")


if __name__ == "__main__":
    main()
