"""The forward pass of every supported family in plain Python doubles, straight from the formulas.

An oracle for tiny models: slow, without batching, caching or any library, so that it shares no
mistake with the engine. Cost: about a second per million weights and token.
"""

import math

PROMPTS = ("tell me about the sea", "The page, 42 \u00e9!")
GREEDY_STEPS = 4


def golden(config, weights, tokenizer):
    """Token ids, every last-position logit and a greedy continuation for PROMPTS."""
    entries = []
    for prompt in PROMPTS:
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
        self.steps = rope_steps(config, self.head_dim)
        self.past = [([], []) for _ in range(config["num_hidden_layers"])]

    def next_logits(self, token_id):
        table = self.weights["model.embed_tokens.weight"]
        x = table[token_id * self.hidden:(token_id + 1) * self.hidden]
        for layer in range(self.config["num_hidden_layers"]):
            stem = "model.layers.%d." % layer
            h = self.norm(x, stem + "input_layernorm")
            x = added(x, self.attention(h, layer, stem + "self_attn."))
            h = self.norm(x, stem + "post_attention_layernorm")
            opened = [g / (1.0 + math.exp(-g)) * u
                      for g, u in zip(self.linear(h, stem + "mlp.gate_proj"),
                                      self.linear(h, stem + "mlp.up_proj"))]
            x = added(x, self.linear(opened, stem + "mlp.down_proj"))
        self.position += 1
        tied = self.config["tie_word_embeddings"]
        return self.linear(self.norm(x, "model.norm"), "model.embed_tokens" if tied else "lm_head")

    def attention(self, h, layer, stem):
        d = self.head_dim
        q, k, v = (split(self.linear(h, stem + part + "_proj"), d) for part in "qkv")
        if stem + "q_norm.weight" in self.weights:
            q = [self.norm(head, stem + "q_norm") for head in q]
            k = [self.norm(head, stem + "k_norm") for head in k]
        keys, values = self.past[layer]
        keys.append([self.rotated(head) for head in k])
        values.append(v)
        out = []
        for head, query in enumerate(q):
            source = head * self.kv_heads // self.heads
            query = self.rotated(query)
            scores = [dot(query, key[source]) / math.sqrt(d) for key in keys]
            top = max(scores)
            shares = [math.exp(s - top) for s in scores]
            total = sum(shares)
            for at in range(d):
                out.append(sum(s * v[source][at] for s, v in zip(shares, values)) / total)
        return self.linear(out, stem + "o_proj")

    def rotated(self, head):
        """Rotates the pairs (i, i + head_dim / 2)."""
        half = self.head_dim // 2
        angles = [self.position * step for step in self.steps]
        a, b = head[:half], head[half:]
        return ([x * math.cos(t) - y * math.sin(t) for x, y, t in zip(a, b, angles)]
                + [y * math.cos(t) + x * math.sin(t) for x, y, t in zip(a, b, angles)])

    def norm(self, x, name):
        scale = 1.0 / math.sqrt(dot(x, x) / len(x) + self.config["rms_norm_eps"])
        return [v * scale * w for v, w in zip(x, self.weights[name + ".weight"])]

    def linear(self, x, name):
        matrix, width = self.weights[name + ".weight"], len(x)
        out = [dot(matrix[row:row + width], x) for row in range(0, len(matrix), width)]
        bias = self.weights.get(name + ".bias")
        return added(out, bias) if bias else out


def rope_steps(config, head_dim):
    """Radians per position of each pair, with Llama 3's scaling where the config asks for it."""
    half = head_dim // 2
    steps = [config["rope_theta"] ** (-i / half) for i in range(half)]
    scaling = config.get("rope_scaling")
    if not scaling:
        return steps
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
