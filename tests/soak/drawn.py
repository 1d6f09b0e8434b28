"""What a soak draws: the flags of a server's life, and requests whose texts begin alike."""

import json
import pathlib
import threading

POLICIES = "fcfs lpm dfs-weight lof random priority shortest-uncached-first hrrn".split()
EVICTIONS = "lru lfu fifo mru filo slru priority gdsf tlru s3fifo hazard".split()
WRITE_POLICIES = "write-through write-through-selective write-back".split()
LAYOUTS = ["layer_first", "page_first"]
PROMPT_TOKENS_MAX = 640


class Lives:
    """Flags of one life of the server after another. Pages of one size, or no life could read another's."""

    def __init__(self, draw, folder, redis_url):
        self.draw = draw
        self.page_tokens = draw.choice(["1", "4", "16"])
        self.disk = f"{folder}/disk"
        self.host_file = f"{folder}/host"
        self.redis_url = redis_url

    def flags(self):
        draw = self.draw
        flags = ["--page-size", self.page_tokens, "--kv-bytes", draw.choice(["1MiB", "1MiB", "2MiB"]),
                 "--concurrency", draw.choice(["1", "3", "8", "16"]), "--chunk-tokens", draw.choice(["16", "64", "300"]),
                 "--policy", draw.choice(POLICIES), "--eviction", draw.choice(EVICTIONS),
                 "--write-policy", draw.choice(WRITE_POLICIES), "--kv-layout", draw.choice(LAYOUTS),
                 "--host-layout", draw.choice(LAYOUTS), "--load-wait-ms", draw.choice(["0", "1", "40", "1000"]),
                 "--threads", draw.choice(["1", "2"]), "--shadow-audit", draw.choice(["0", "0", "10"])]
        if draw.random() < 0.9:
            flags += ["--host-bytes", draw.choice(["1MiB", "4MiB", "16MiB"])]
            if draw.random() < 0.4:
                flags += ["--host-file", self.host_file]
        stores = draw.choice(["none", "disk", "disk", "remote", "remote", "both"])
        if stores in ("disk", "both"):
            flags += ["--disk", self.disk, "--disk-bytes", draw.choice(["64MiB", "1GiB"])]
        if stores in ("remote", "both") and self.redis_url is not None:
            flags += ["--remote", self.redis_url]
        return flags


class Texts:
    """Requests that go on from what was asked and answered before. Many threads draw from one."""

    def __init__(self, draw, model):
        config = json.loads(pathlib.Path(model, "config.json").read_text())
        self.vocabulary = config["vocab_size"]
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
        if draw.random() < 0.1:
            body["cache_salt"] = draw.choice("ab")
        if draw.random() < 0.05:
            body["prompt_cache_retention"] = "24h"
        if draw.random() < 0.2:
            body["priority"] = draw.randrange(3)
        return body

    def go_on_from(self, body, choices):
        with self.lock:
            self.known.append(body["prompt"] + choices[0]["token_ids"])
            del self.known[:-300]
