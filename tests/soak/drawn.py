"""What a soak draws: the flags of a server's life, and requests whose texts begin alike."""

import array
import hashlib
import json
import pathlib
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools/train_model"))
import safetensors_io  # noqa: E402

POLICIES = "fcfs lpm dfs-weight lof random priority shortest-uncached-first hrrn".split()
EVICTIONS = "lru lfu fifo mru filo slru priority gdsf tlru s3fifo hazard".split()
WRITE_POLICIES = "write-through write-through-selective write-back".split()
LAYOUTS = ["layer_first", "page_first"]
PROMPT_TOKENS_MAX = 640
KEYS = ["one", "other", "admin"]  # of two tenants and of who may do everything
SHARED_TEXT = "You are a helpful assistant. Answer shortly, and say so where you do not know. "
# What an answer has to be.
FORMS = [
    {"guided_regex": "[a-z]{1,9}( [a-z]{1,9}){0,7}"},
    {"ebnf": 'root ::= sum\nsum ::= term ("+" term){0,3}\nterm ::= [0-9]{1,4} | "(" sum ")"'},
    {"guided_choice": ["yes", "no", "nobody", "never before"]},
    {"guided_json": {"type": "array", "items": {"type": "string", "maxLength": 5}}},
    {"guided_json": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["b"]}},
    {"json_schema": '{"$ref":"#/$defs/n","$defs":{"n":{"type":["null","array"],"items":{"$ref":"#/$defs/n"}}}}'},
    {"structural_tag": {"format": {"type": "triggered_tags", "triggers": ["e"], "tags": [
        {"begin": "e", "content": {"type": "json_schema", "json_schema": {"type": "array", "items": {"type": "boolean"}}}, "end": "."}]}}},
]


class Lives:
    """Flags of one life of the server after another. Pages of one size, or no life could read another's."""

    def __init__(self, draw, model, folder, redis_url):
        self.draw = draw
        # What changes answers: the same of every life and of the reference.
        self.of_all = ["--kv-dtype", draw.choice(["auto", "auto", "f32", "f16", "int8", "fp8_e4m3"]),
                       "--weights", draw.choice(["auto", "auto", "int8", "int4"])]
        self.adapters = [write_adapter(model, folder, name) for name in ("poet", "sage")] if can_adapt(model) else []
        for name, path in self.adapters:
            self.of_all += ["--adapter", f"{name}={path}"]
        self.folder = folder
        self.page_tokens = draw.choice(["1", "4", "16"])
        self.disk = f"{folder}/disk"
        self.host_file = f"{folder}/host"
        self.redis_url = redis_url
        self.keys_file = f"{folder}/keys"
        tenants = [("one", "first", "pages=30"), ("other", "second", ""), ("admin", "third", "admin")]
        pathlib.Path(self.keys_file).write_text("".join(
            f"{tenant} {hashlib.sha256(key.encode()).hexdigest()} {rights}\n" for key, tenant, rights in tenants))
        self.shared_file = f"{folder}/shared"
        pathlib.Path(self.shared_file).write_text(json.dumps({"prompt": SHARED_TEXT}) + "\n")

    def flags(self):
        draw = self.draw
        flags = ["--page-size", self.page_tokens, "--kv-bytes", draw.choice(["1MiB", "1MiB", "2MiB"]),
                 "--concurrency", draw.choice(["1", "3", "8", "16"]), "--chunk-tokens", draw.choice(["16", "64", "300"]),
                 "--policy", draw.choice(POLICIES), "--eviction", draw.choice(EVICTIONS),
                 "--kv-layout", draw.choice(LAYOUTS),
                 "--threads", draw.choice(["1", "2"]), "--shadow-audit", draw.choice(["0", "0", "10"])]
        of_tiers = ["--write-policy", draw.choice(WRITE_POLICIES), "--host-layout", draw.choice(LAYOUTS),
                    "--load-wait-ms", draw.choice(["0", "1", "40", "1000"])]
        if draw.random() < 0.9:
            flags += ["--host-bytes", draw.choice(["1MiB", "4MiB", "16MiB"])]
            if draw.random() < 0.4:
                flags += ["--host-file", self.host_file]
        if draw.random() < 0.3:
            flags += ["--api-keys", self.keys_file]
            if draw.random() < 0.5:
                flags += ["--shared-prefixes", self.shared_file]
        if draw.random() < 0.2:
            flags += ["--events", "tcp://127.0.0.1:*", "--metrics-compat", "vllm", "sglang"]
        stores = draw.choice(["none", "disk", "disk", "remote", "remote", "both"])
        if stores in ("disk", "both"):
            flags += ["--disk", self.disk, "--disk-bytes", draw.choice(["64MiB", "1GiB"])]
        if stores in ("remote", "both") and self.redis_url is not None:
            flags += ["--remote", self.redis_url]
        if {"--host-bytes", "--disk", "--remote"} & set(flags):
            flags += of_tiers
        return flags + ["--adapters-from", self.folder] + self.of_all


class Texts:
    """Requests that go on from what was asked and answered before. Many threads draw from one."""

    def __init__(self, draw, model, adapters):
        self.vocabulary = config_of(model)["vocab_size"]
        self.adapters = [name for name, _ in adapters]
        self.lock = threading.Lock()
        self.begins = [self.tokens(draw, count) for count in (40, 130, 300)]
        self.known = []

    def tokens(self, draw, count):
        return [draw.randrange(3, self.vocabulary) for _ in range(count)]

    def prompt(self, draw):
        with self.lock:
            begin = draw.choice(self.begins + self.known[-40:])
        prompt = begin + self.tokens(draw, draw.choice([0, 1, 3, 17, 60]))
        if len(prompt) > PROMPT_TOKENS_MAX:
            prompt = draw.choice(self.begins) + self.tokens(draw, 3)
        return prompt[:draw.randrange(1, len(prompt) + 1)] if draw.random() < 0.1 else prompt

    def request(self, draw):
        """A body of /v1/completions, of which every server gives the same answer."""
        body = {"prompt": self.prompt(draw), "max_tokens": draw.choice([1, 4, 12, 33]), "logprobs": 2,
                "temperature": draw.choice([0, 0, 0.8]), "seed": draw.randrange(1 << 30), "n": draw.choice([1, 1, 1, 2, 4]),
                "return_token_ids": True, "ignore_eos": True}
        if draw.random() < 0.05:
            body["prompt"] = SHARED_TEXT + str(draw.randrange(100))
        if draw.random() < 0.15:
            body.update(draw.choice(FORMS))
        if draw.random() < 0.15:
            body["echo"] = True
            body["max_tokens"] = draw.choice([0, body["max_tokens"]])
            if draw.random() < 0.5:
                body["logprob_start_len"] = draw.choice([1, 20, 130, 400])
        if draw.random() < 0.2 and self.adapters:
            body["model"] = draw.choice(self.adapters)
        if draw.random() < 0.1:
            body["cache_salt"] = draw.choice("ab")
        if draw.random() < 0.05:
            body["prompt_cache_retention"] = "24h"
        if draw.random() < 0.2:
            body["priority"] = draw.randrange(3)
        return body

    def go_on_from(self, body, choices):
        if isinstance(body["prompt"], str):
            return
        with self.lock:
            self.known.append(body["prompt"] + choices[0]["token_ids"])
            del self.known[:-300]


def config_of(model):
    return json.loads(pathlib.Path(model, "config.json").read_text())


def can_adapt(model):
    return "kv_lora_rank" not in config_of(model)


def write_adapter(model, folder, name):
    """(name, directory) of an adapter that changes every layer's queries and values."""
    config = config_of(model)
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    outputs = {"q_proj": config["num_attention_heads"] * head_dim, "v_proj": config["num_key_value_heads"] * head_dim}
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for matrix, count in outputs.items():
            for half, shape in (("A", (2, config["hidden_size"])), ("B", (count, 2))):
                full_name = f"base_model.model.model.layers.{layer}.self_attn.{matrix}.lora_{half}.weight"
                scores = hashlib.shake_128(f"{name} {full_name}".encode()).digest(shape[0] * shape[1])
                values = array.array("f", [(score - 127.5) / 512 for score in scores])
                tensors[full_name] = ("F32", shape, values.tobytes())
    directory = pathlib.Path(folder, name)
    directory.mkdir()
    safetensors_io.write(directory / "adapter_model.safetensors", tensors)
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": list(outputs)}
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    return name, str(directory)
