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
    # The same with mixtures of experts around a dense layer.
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64,
        "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "num_hidden_layers": 3, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "rope_scaling": None, "attention_bias": False, "tie_word_embeddings": False,
        "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [1]},
    # Latent attention with YaRN; a dense layer, then experts in groups and shared ones.
    "deepseek_v2": {
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 64,
        "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 4,
        "q_lora_rank": None, "kv_lora_rank": 48, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
        "v_head_dim": 20, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64,
                         "beta_fast": 4, "beta_slow": 0.05, "mscale": 0.707,
                         "mscale_all_dim": 0.5},
        "attention_bias": False, "tie_word_embeddings": False, "n_routed_experts": 8,
        "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
        "scoring_func": "softmax", "topk_method": "group_limited_greedy", "n_group": 4,
        "topk_group": 2, "norm_topk_prob": False, "routed_scaling_factor": 2.0,
        "first_k_dense_replace": 1, "moe_layer_freq": 1},
    # A rank for q; experts chosen by corrected sigmoids, groups by their two best. The norms of
    # latent attention do not have the file's epsilon.
    "deepseek_v3": {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 64,
        "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 4,
        "q_lora_rank": 40, "kv_lora_rank": 48, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
        "v_head_dim": 20, "rms_norm_eps": 1e-3, "rope_theta": 10000.0, "rope_scaling": None,
        "attention_bias": False, "tie_word_embeddings": False, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 2, "topk_group": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
        "moe_layer_freq": 1},
    # Every layer looks back over a window.
    "mistral": {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 64,
        "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 40, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 17,
        "attention_dropout": 0.0, "tie_word_embeddings": False},
    # Every other layer does; scores and logits are capped where the caps tell. The root of the
    # width is not one that bfloat16 has.
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 60,
        "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "num_hidden_layers": 3, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0, "sliding_window": 16, "attention_bias": False,
        "tie_word_embeddings": True},
    # All but every sixth do, and turn by a frequency of their own; norms on queries and keys.
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 60,
        "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "num_hidden_layers": 6, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": None, "final_logit_softcapping": None, "sliding_window": 11,
        "sliding_window_pattern": 6, "attention_bias": False, "tie_word_embeddings": True},
}

# Norms whose weights are added to one.
GEMMA = ("gemma2", "gemma3")

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
    hidden = config["hidden_size"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        stem = "model.layers.%d." % layer
        shapes[stem + "input_layernorm.weight"] = (hidden,)
        attention = latent_shapes if "kv_lora_rank" in config else attention_shapes
        shapes.update({stem + "self_attn." + n: shape for n, shape in attention(config).items()})
        shapes[stem + "post_attention_layernorm.weight"] = (hidden,)
        if config["model_type"].startswith("gemma"):
            shapes[stem + "pre_feedforward_layernorm.weight"] = (hidden,)
            shapes[stem + "post_feedforward_layernorm.weight"] = (hidden,)
        mlp = (mixture_shapes(config) if tiny_forward.is_mixture(config, layer)
               else mlp_shapes(hidden, config["intermediate_size"]))
        shapes.update({stem + "mlp." + name: shape for name, shape in mlp.items()})
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def attention_shapes(config):
    hidden = config["hidden_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_key_value_heads"] * head_dim
    shapes = {"q_proj.weight": (queries, hidden), "k_proj.weight": (keys, hidden),
              "v_proj.weight": (keys, hidden), "o_proj.weight": (hidden, queries)}
    if config["model_type"] == "qwen2":
        shapes.update({part + "_proj.bias": (size,)
                       for part, size in (("q", queries), ("k", keys), ("v", keys))})
    if config["model_type"] in ("qwen3", "qwen3_moe", "gemma3_text"):
        shapes.update({part + "_norm.weight": (head_dim,) for part in ("q", "k")})
    return shapes


def latent_shapes(config):
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    rank, query_rank = config["kv_lora_rank"], config["q_lora_rank"]
    plain, turned, value = (config[part + "_head_dim"] for part in ("qk_nope", "qk_rope", "v"))
    queries = heads * (plain + turned)
    if query_rank is None:
        shapes = {"q_proj.weight": (queries, hidden)}
    else:
        shapes = {"q_a_proj.weight": (query_rank, hidden), "q_a_layernorm.weight": (query_rank,),
                  "q_b_proj.weight": (queries, query_rank)}
    shapes.update({"kv_a_proj_with_mqa.weight": (rank + turned, hidden),
                   "kv_a_layernorm.weight": (rank,),
                   "kv_b_proj.weight": (heads * (plain + value), rank),
                   "o_proj.weight": (hidden, heads * value)})
    return shapes


def mlp_shapes(hidden, inner):
    return {"gate_proj.weight": (inner, hidden), "up_proj.weight": (inner, hidden),
            "down_proj.weight": (hidden, inner)}


def mixture_shapes(config):
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    experts = config.get("num_experts") or config["n_routed_experts"]
    shapes = {"gate.weight": (experts, hidden)}
    if config.get("topk_method") == "noaux_tc":
        shapes["gate.e_score_correction_bias"] = (experts,)
    for expert in range(experts):
        shapes.update({"experts.%d.%s" % (expert, name): shape
                       for name, shape in mlp_shapes(hidden, inner).items()})
    shared = config.get("n_shared_experts")
    if shared:
        shapes.update({"shared_experts." + name: shape
                       for name, shape in mlp_shapes(hidden, shared * inner).items()})
    return shapes


def random_weights(config, family, seed):
    """{name: floats}: matrices of about unit gain, norms near one, small biases."""
    values, mean = {}, 0.0 if family in GEMMA else 1.0
    for name, shape in weight_shapes(config).items():
        draw = random.Random("%s/%s/%d" % (family, name, seed)).random
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        if name.endswith("norm.weight"):
            values[name] = [mean + 0.4 * (draw() - 0.5) for _ in range(count)]
        elif name.endswith("bias"):
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
