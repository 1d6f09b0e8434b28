"""The forward pass of every supported family in plain Python doubles, straight from the formulas.

An oracle for tiny models: slow, without batching, caching or any library, so that it shares no
mistake with the engine. Cost: about a second per million weights and token.
"""

import math
import struct

PROMPTS = ("tell me about the sea", "The page, 42 \u00e9!")
# Longer than the windows, by several pages.
WINDOWED_PROMPT = ("what the scribe wrote first is read no more where only the last words are, and "
                   "what was read before that lives on")
GREEDY_STEPS = 4


def golden(config, weights, tokenizer):
    """Token ids, every last-position logit and a greedy continuation for PROMPTS."""
    entries = []
    windowed = any(window_tokens(config, i) for i in range(config["num_hidden_layers"]))
    for prompt in PROMPTS + ((WINDOWED_PROMPT,) if windowed else ()):
        ids = tokenizer.encode(prompt)
        model = TinyModel(config, weights)
        for token_id in ids:
            logits = model.next_logits(token_id)
        first, chosen = logits, []
        while len(chosen) < GREEDY_STEPS:
            chosen.append(max(range(len(logits)), key=logits.__getitem__))
            logits = model.next_logits(chosen[-1])
        entries.append({"prompt": prompt, "prompt_token_ids": ids,
                        "last_logits": [round(v, 6) for v in first],
                        "greedy_token_ids": chosen})
    return {"what": "the stored weights, arithmetic in double precision", "prompts": entries}


class TinyModel:
    """Feeds one sequence, token by token, remembering keys and values per layer."""

    def __init__(self, config, weights):
        self.config, self.weights, self.position = config, weights, 0
        self.hidden = config["hidden_size"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config.get("head_dim", self.hidden // self.heads)
        self.steps = rope_steps(config, config.get("qk_rope_head_dim", self.head_dim))
        # Gemma: norms of 1 + weight, and norms of what attention and MLP say; larger embeddings.
        self.gemma = config["model_type"] in ("gemma2", "gemma3_text")
        self.past = [([], []) for _ in range(config["num_hidden_layers"])]

    def next_logits(self, token_id):
        table = self.weights["model.embed_tokens.weight"]
        x = table[token_id * self.hidden:(token_id + 1) * self.hidden]
        if self.gemma:
            x = [embedding_scale(self.config) * v for v in x]
        for layer in range(self.config["num_hidden_layers"]):
            stem = "model.layers.%d." % layer
            h = self.norm(x, stem + "input_layernorm")
            attention = self.latent_attention if "kv_lora_rank" in self.config else self.attention
            said = attention(h, layer, stem + "self_attn.")
            if self.gemma:
                said = self.norm(said, stem + "post_attention_layernorm")
            x = added(x, said)
            h = self.norm(x, stem + ("pre_feedforward_layernorm" if self.gemma
                                     else "post_attention_layernorm"))
            mlp = self.mixture if is_mixture(self.config, layer) else self.mlp
            said = mlp(h, stem + "mlp.")
            if self.gemma:
                said = self.norm(said, stem + "post_feedforward_layernorm")
            x = added(x, said)
        self.position += 1
        tied = self.config["tie_word_embeddings"]
        logits = self.linear(self.norm(x, "model.norm"),
                             "model.embed_tokens" if tied else "lm_head")
        return capped(logits, self.config.get("final_logit_softcapping"))

    def mlp(self, h, stem):
        activation = gelu_by_tanh if self.gemma else silu
        opened = [activation(g) * u for g, u in zip(self.linear(h, stem + "gate_proj"),
                                                    self.linear(h, stem + "up_proj"))]
        return self.linear(opened, stem + "down_proj")

    def mixture(self, h, stem):
        out = [0.0] * len(h)
        if stem + "shared_experts.up_proj.weight" in self.weights:
            out = self.mlp(h, stem + "shared_experts.")
        bias = self.weights.get(stem + "gate.e_score_correction_bias")
        for expert, weight in routed(self.config, self.linear(h, stem + "gate"), bias):
            out = added(out, [weight * v for v in self.mlp(h, stem + "experts.%d." % expert)])
        return out

    def latent_attention(self, h, layer, stem):
        """DeepSeek's: keys and values of every head come back from one latent row a token."""
        rank = self.config["kv_lora_rank"]
        plain, turned, wide = (self.config[n + "_head_dim"] for n in ("qk_nope", "qk_rope", "v"))
        if self.config["q_lora_rank"] is None:
            queries = self.linear(h, stem + "q_proj")
        else:
            low = self.norm(self.linear(h, stem + "q_a_proj"), stem + "q_a_layernorm", 1e-6)
            queries = self.linear(low, stem + "q_b_proj")
        down = self.linear(h, stem + "kv_a_proj_with_mqa")
        latent = self.norm(down[:rank], stem + "kv_a_layernorm", 1e-6)
        up = self.linear(latent, stem + "kv_b_proj")
        shared = self.turned_pairs(down[rank:])
        keys, values = self.past[layer]
        keys.append([row[:plain] + shared for row in split(up, plain + wide)])
        values.append([row[plain:] for row in split(up, plain + wide)])
        scale = latent_scale(self.config)
        out = []
        for head, query in enumerate(split(queries, plain + turned)):
            query = query[:plain] + self.turned_pairs(query[plain:])
            scores = [scale * dot(query, key[head]) for key in keys]
            top = max(scores)
            shares = [math.exp(s - top) for s in scores]
            total = sum(shares)
            out += [sum(s * v[head][at] for s, v in zip(shares, values)) / total
                    for at in range(wide)]
        return self.linear(out, stem + "o_proj")

    def turned_pairs(self, row):
        """Rotates the pairs (2 i, 2 i + 1), as DeepSeek's files have them."""
        length, out = turned_length(self.config), []
        for (a, b), step in zip(split(row, 2), self.steps):
            c, s = math.cos(self.position * step), math.sin(self.position * step)
            out += [length * (a * c - b * s), length * (a * s + b * c)]
        return out

    def attention(self, h, layer, stem):
        d = self.head_dim
        q, k, v = (split(self.linear(h, stem + part + "_proj"), d) for part in "qkv")
        if stem + "q_norm.weight" in self.weights:
            q = [self.norm(head, stem + "q_norm") for head in q]
            k = [self.norm(head, stem + "k_norm") for head in k]
        window = window_tokens(self.config, layer)
        steps = self.steps
        if window and "rope_local_base_freq" in self.config:
            steps = plain_steps(self.config["rope_local_base_freq"], d)
        keys, values = self.past[layer]
        keys.append([self.rotated(head, steps) for head in k])
        values.append(v)
        if window:  # the query's own key is the last that it sees
            del keys[:-window], values[:-window]
        scale = 1.0 / math.sqrt(self.config.get("query_pre_attn_scalar", d))
        out = []
        for head, query in enumerate(q):
            source = head * self.kv_heads // self.heads
            query = self.rotated(query, steps)
            scores = capped([scale * dot(query, key[source]) for key in keys],
                            self.config.get("attn_logit_softcapping"))
            top = max(scores)
            shares = [math.exp(s - top) for s in scores]
            total = sum(shares)
            for at in range(d):
                out.append(sum(s * v[source][at] for s, v in zip(shares, values)) / total)
        return self.linear(out, stem + "o_proj")

    def rotated(self, head, steps):
        """Rotates the pairs (i, i + head_dim / 2)."""
        half = self.head_dim // 2
        angles = [self.position * step for step in steps]
        a, b = head[:half], head[half:]
        return ([x * math.cos(t) - y * math.sin(t) for x, y, t in zip(a, b, angles)]
                + [y * math.cos(t) + x * math.sin(t) for x, y, t in zip(a, b, angles)])

    def norm(self, x, name, epsilon=None):
        """With the file's epsilon, unless the norm has one of its own."""
        if epsilon is None:
            epsilon = self.config["rms_norm_eps"]
        scale = 1.0 / math.sqrt(dot(x, x) / len(x) + epsilon)
        more = 1.0 if self.gemma else 0.0
        return [v * scale * (more + w) for v, w in zip(x, self.weights[name + ".weight"])]

    def linear(self, x, name):
        matrix, width = self.weights[name + ".weight"], len(x)
        out = [dot(matrix[row:row + width], x) for row in range(0, len(matrix), width)]
        bias = self.weights.get(name + ".bias")
        return added(out, bias) if bias else out


def window_tokens(config, layer):
    """How many tokens a query of this layer sees, its own among them; None: all up to its own."""
    family = config["model_type"]
    if family == "mistral":
        return config["sliding_window"]
    every = {"gemma2": 2, "gemma3_text": config.get("sliding_window_pattern")}.get(family)
    return config["sliding_window"] if every and (layer + 1) % every else None


def embedding_scale(config):
    """The root of the width, rounded to the type of the weights as the models were trained."""
    root = math.sqrt(config["hidden_size"])
    if config["torch_dtype"] == "bfloat16":
        bits = struct.unpack("<I", struct.pack("<f", root))[0]
        kept = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return struct.unpack("<f", struct.pack("<I", kept))[0]
    letter = "e" if config["torch_dtype"] == "float16" else "f"
    return struct.unpack("<" + letter, struct.pack("<" + letter, root))[0]


def capped(values, cap):
    return [cap * math.tanh(v / cap) for v in values] if cap else values


def silu(x):
    return x / (1.0 + math.exp(-x))


def gelu_by_tanh(x):
    return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3)))


def is_mixture(config, layer):
    if "num_experts" in config:
        return (layer not in config["mlp_only_layers"]
                and (layer + 1) % config["decoder_sparse_step"] == 0)
    return ("n_routed_experts" in config and layer >= config["first_k_dense_replace"]
            and layer % config["moe_layer_freq"] == 0)


def routed(config, logits, bias):
    """[(expert, weight)] of one token, from the router's logits."""
    corrected = bias is not None
    if corrected:
        scores = [1.0 / (1.0 + math.exp(-v)) for v in logits]
    else:
        total = math.fsum(math.exp(v) for v in logits)
        scores = [math.exp(v) / total for v in logits]
    wishes = added(scores, bias) if corrected else scores
    grouped = config.get("topk_method", "greedy") != "greedy"
    groups = config["n_group"] if grouped else 1
    size = len(scores) // groups
    worth = [sum(sorted(group)[-2:] if corrected else sorted(group)[-1:])
             for group in split(wishes, size)]
    kept = sorted(range(groups), key=lambda g: -worth[g])[:config["topk_group"] if grouped else 1]
    experts = sorted((e for e in range(len(scores)) if e // size in kept),
                     key=lambda e: -wishes[e])[:config["num_experts_per_tok"]]
    scale = config.get("routed_scaling_factor", 1.0)
    if config["norm_topk_prob"]:
        # DeepSeek-V2 does not scale what it normalises; V3 does.
        scale = (scale if corrected else 1.0) / sum(scores[e] for e in experts)
    return [(e, scores[e] * scale) for e in experts]


def yarn_length(config, name, default):
    scaling = config.get("rope_scaling") or {}
    factor = scaling.get("factor", 1.0) if scaling.get("type") == "yarn" else 1.0
    return 1.0 + 0.1 * scaling.get(name, default) * math.log(factor)


def turned_length(config):
    return yarn_length(config, "mscale", 1.0) / yarn_length(config, "mscale_all_dim", 0.0)


def latent_scale(config):
    width = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    return yarn_length(config, "mscale_all_dim", 0.0) ** 2 / math.sqrt(width)


def yarn_steps(steps, config, head_dim):
    """Between two pairs, found by how often they turn in the original length, a ramp."""
    scaling, theta = config["rope_scaling"], config["rope_theta"]
    length = scaling["original_max_position_embeddings"]

    def pair(turns):
        return head_dim * math.log(length / (turns * 2.0 * math.pi)) / (2.0 * math.log(theta))

    low = max(0, math.floor(pair(scaling["beta_fast"])))
    high = min(head_dim - 1, math.ceil(pair(scaling["beta_slow"])))
    shares = [min(1.0, max(0.0, (i - low) / (high - low))) for i in range(len(steps))]
    return [step * (1.0 - share + share / scaling["factor"])
            for step, share in zip(steps, shares)]


def plain_steps(theta, head_dim):
    half = head_dim // 2
    return [theta ** (-i / half) for i in range(half)]


def rope_steps(config, head_dim):
    """Radians per position of each pair, with the scaling that is asked for."""
    steps = plain_steps(config["rope_theta"], head_dim)
    scaling = config.get("rope_scaling")
    if not scaling:
        return steps
    if scaling.get("rope_type") == "linear":
        return [step / scaling["factor"] for step in steps]
    if scaling.get("type") == "yarn":
        return yarn_steps(steps, config, head_dim)
    assert scaling["rope_type"] == "llama3", scaling
    length, low, high = (scaling[k] for k in ("original_max_position_embeddings",
                                              "low_freq_factor", "high_freq_factor"))
    scaled = []
    for step in steps:
        turns = length * step / (2.0 * math.pi)  # full turns within the original length
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        scaled.append(step * (share + (1.0 - share) / scaling["factor"]))
    return scaled


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def added(a, b):
    return [x + y for x, y in zip(a, b)]


def split(x, width):
    return [x[at:at + width] for at in range(0, len(x), width)]
