#!/usr/bin/env python3
"""Asks a server under faults what a server without a cache answers: the same, token for token and probability for
probability (I13), or the connection was cut.

    tests/soak/soak.py build/release/stemma                       two families, some hundred answers
    tests/soak/soak.py build/release/stemma --answers 20000 --seed 7 --families gemma3 llama3
    tests/soak/soak.py build/tsan/stemma --reference build/release/stemma
    tests/soak/soak.py build/release/stemma --families models/scribe-3m
    tests/soak/soak.py build/release/stemma_emulated --device cuda --answers 60

The server has memory for a few requests, so that everything moves through every tier. After each dozen of answers
something happens to it: it is killed, or ended, and comes back with other flags over the same files; bits flip in
those files, or they are cut; the redis-server beside it dies, stops for a while or forgets; the cache is flushed,
purged, warmed and looked at; adapters go and come again, or are replaced by themselves; clients leave in the middle. A server that ends by itself fails the soak, and so does
one that exits with an error or a tier in which nothing was found. Sanitized builds have no kernels of AVX-512: where a
machine has it, the reference of one is another sanitized build. Random models of tools/make_test_models.py. A failure leaves its folder, with the log.
"""

import argparse
import concurrent.futures
import glob
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from drawn import KEYS, Lives, Texts
from served import Redis, Served

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = 8
ANSWERS_BETWEEN_FAULTS = 12
GONE = (OSError, http.client.HTTPException)
END_OF_STREAM = "data: [DONE]\n\n"


class Soak:
    def __init__(self, args, family, folder):
        self.args, self.folder = args, folder
        self.model = make_model(family, folder)
        self.draw = random.Random(f"{args.seed} {family}")
        self.redis = Redis(folder) if Redis.there_is() else None
        self.lives = Lives(self.draw, self.model, folder, self.redis.url if self.redis else None)
        self.texts = Texts(self.draw, self.model, self.lives.adapters)
        self.reference = Served(args.reference, self.model,
                                ["--cache", "none", "--kv-bytes", "64MiB", "--concurrency", "4", "--threads", "1"] +
                                self.lives.of_all + self.device_flags(), f"{folder}/reference.log")
        self.changing = threading.RLock()  # held while one server goes and another comes
        self.server = self.start()
        self.counts = dict.fromkeys(["answers", "left", "cut off", "without their adapter", "restarts", "damaged files"], 0)
        self.hits = dict.fromkeys(["device", "host", "disk", "remote"], 0)

    def start(self):
        return Served(self.args.program, self.model, self.lives.flags() + self.device_flags(), f"{self.folder}/served.log")

    def device_flags(self):
        return ["--device", self.args.device, "--deterministic"] if self.args.device != "cpu" else []

    def count(self, what):
        with self.changing:
            self.counts[what] += 1

    def serving(self):
        """The server that is there, or comes."""
        with self.changing:
            return self.server

    # -- what clients do

    def one_client(self, number):
        draw = random.Random(f"{self.args.seed} {number}")
        body, key = self.texts.request(draw), draw.choice(KEYS)
        server = self.serving()
        try:
            if draw.random() < 0.15:
                server.leave_after("/v1/completions", body | {"stream": True}, key, draw.choice([1, 300, 3000]))
                return self.count("left")
            streams = draw.random() < 0.5
            status, text = server.ask("POST", "/v1/completions", body | {"stream": streams}, key)
        except GONE:
            return self.count("cut off")
        if status == 404 and "model" in body:
            return self.count("without their adapter")
        if status != 200:
            raise AssertionError(f"status {status}: {text}")
        if streams and not text.endswith(END_OF_STREAM):
            return self.count("cut off")
        answer = choices_of_stream(text) if streams else choices_of(text)
        wanted = choices_of(self.reference.ask("POST", "/v1/completions", body)[1])
        if answer != wanted:
            report = json.dumps({"flags": server.flags, "request": body, "answer": answer, "wanted": wanted})
            pathlib.Path(self.folder, "wrong.json").write_text(report)
            raise AssertionError(f"another answer than without a cache: {self.folder}/wrong.json")
        self.texts.go_on_from(body, wanted)
        self.count("answers")

    # -- what happens to the server

    def end(self, how):
        self.note_hits()
        code = self.server.end(how)
        if how == signal.SIGTERM and code != 0:
            raise AssertionError(f"exit code {code}")

    def restart(self, how):
        with self.changing:
            if self.server.ended():
                raise AssertionError(f"the server ended by itself: {self.server.process.returncode}")
            self.end(how)
            if self.draw.random() < 0.1:
                shutil.rmtree(self.lives.disk, ignore_errors=True)
            if self.draw.random() < 0.5:
                self.damage()
            self.server = self.start()
            self.counts["restarts"] += 1

    def note_hits(self):
        for line in self.server.ask("GET", "/metrics", None, "admin")[1].splitlines():
            for tier in self.hits:
                if line.startswith(f'stemma_hit_tokens_total{{source="{tier}"}} '):
                    self.hits[tier] += int(line.split()[1])

    def damage(self):
        """Flips bits of one of the server's files, or cuts it."""
        files = [name for name in glob.glob(f"{self.lives.disk}/**", recursive=True) + glob.glob(self.lives.host_file)
                 if os.path.isfile(name) and os.path.getsize(name) > 0]
        if not files:
            return
        draw = self.draw
        try:
            with open(draw.choice(files), "r+b") as file:
                size = os.fstat(file.fileno()).st_size
                if draw.random() < 0.1:
                    file.truncate(draw.randrange(size))
                for place in [draw.randrange(size) for _ in range(draw.choice([1, 20, 400]))]:
                    flip_bit(file, place, draw.randrange(8))
        except FileNotFoundError:
            return  # the server took it away
        self.count("damaged files")

    def trouble_redis(self):
        if self.redis is None:
            return
        what = self.draw.choice(["dies", "stops", "forgets"])
        if what == "dies":
            self.redis.kill()
            yield
            self.redis.start()
        elif what == "stops":
            self.redis.pause()
            yield
            self.redis.go_on()
        else:
            self.redis.forget()

    def look(self):
        """Everything else that a client may ask of the cache."""
        draw, server = self.draw, self.server
        prompt = self.texts.prompt(draw)
        for method, path, body in draw.sample(
                [("POST", "/flush_cache", {}), ("DELETE", "/v1/cache", None), ("POST", "/v1/cache/warm", {"prompt": prompt}),
                 ("POST", "/v1/cache/explain", {"prompt": prompt}), ("GET", "/v1/cache/tree", None),
                 ("GET", "/v1/cache/stats", None), ("GET", "/debug/kv", None), ("GET", "/metrics", None)], 3):
            status, text = server.ask(method, path, body, draw.choice(KEYS))
            if status >= 500:
                raise AssertionError(f"{method} {path}: {status} {text}")

    def change_adapters(self):
        """One goes and comes again after a while, or is read anew in its own place, while requests have it."""
        if not self.lives.adapters:
            return
        name, directory = self.draw.choice(self.lives.adapters)
        again = {"lora_name": name, "lora_path": directory, "load_inplace": True}
        changes = [("/v1/load_lora_adapter", again)] * self.draw.choice([1, 3])
        if self.draw.random() < 0.5:
            changes = [("/v1/unload_lora_adapter", {"lora_name": name})]
            self.ask_for(changes)
            yield
            changes = [("/v1/load_lora_adapter", again)]
        self.ask_for(changes)

    def ask_for(self, changes):
        """As an admin; another life of the server has its adapters from the beginning."""
        for path, body in changes:
            status, text = self.serving().ask("POST", path, body, "admin")
            if status not in (200, 404):
                raise AssertionError(f"{path}: {status} {text}")

    def happen(self):
        """A fault, in two halves where it lasts: the second is run after the next dozen of answers."""
        what = self.draw.choice(["kill", "end", "damage", "damage", "redis", "redis", "look", "look", "adapters"])
        if what == "kill":
            self.restart(signal.SIGKILL)
        elif what == "end":
            self.restart(signal.SIGTERM)
        elif what == "damage":
            self.damage()
        elif what == "redis":
            yield from self.trouble_redis()
        elif what == "adapters":
            yield from self.change_adapters()
        else:
            self.look()

    def run(self):
        under_way = []
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            for begin in range(0, self.args.answers, ANSWERS_BETWEEN_FAULTS):
                asked = [clients.submit(self.one_client, begin + i) for i in range(ANSWERS_BETWEEN_FAULTS)]
                for future in asked[:self.draw.randrange(ANSWERS_BETWEEN_FAULTS // 2)]:
                    future.result()  # the others are still under way when it happens
                under_way = [fault for fault in under_way + [self.happen()] if next(fault, self) is not self]
                for future in asked:
                    future.result()
        for fault in under_way:
            next(fault, None)
        self.end(signal.SIGTERM)

    def close(self):
        for process in [self.server.process, self.reference.process] + ([self.redis.process] if self.redis else []):
            process.kill()
            process.wait()


def make_model(family, folder):
    if os.path.isdir(family):
        return family
    subprocess.run([sys.executable, ROOT / "tools/make_test_models.py", "--family", family, "--out", f"{folder}/model"],
                   check=True, stdout=subprocess.DEVNULL)
    return f"{folder}/model"


def choices_of(text):
    """What must be equal of an answer."""
    return [{key: choice[key] for key in ("index", "text", "token_ids", "logprobs", "finish_reason")}
            for choice in json.loads(text)["choices"]]


def choices_of_stream(text):
    """The same, of an answer in pieces."""
    choices = {}
    for line in text.splitlines():
        if not line.startswith("data: {"):
            continue
        for piece in json.loads(line.removeprefix("data: "))["choices"]:
            choice = choices.setdefault(piece["index"], {"index": piece["index"], "text": "", "token_ids": [], "logprobs": None})
            choice["text"] += piece["text"]
            choice["token_ids"] += piece["token_ids"]
            choice["finish_reason"] = piece["finish_reason"]
            if piece["logprobs"] is not None:
                whole = choice["logprobs"] or dict.fromkeys(piece["logprobs"], [])
                choice["logprobs"] = {key: whole[key] + values for key, values in piece["logprobs"].items()}
    return [choices[index] for index in sorted(choices)]


def flip_bit(file, place, bit):
    file.seek(place)
    byte = file.read(1)
    if byte:
        file.seek(place)
        file.write(bytes([byte[0] ^ 1 << bit]))


def soak(args, family):
    folder = tempfile.mkdtemp(prefix=f"soak_{os.path.basename(family)}_", dir=os.environ.get("TEST_TMPDIR"))
    print(f"soak: {family}, seed {args.seed}", flush=True)
    trial = Soak(args, family, folder)
    try:
        trial.run()
    except BaseException:
        print(f"soak: {family}, seed {args.seed}: see {folder}; flags: {' '.join(trial.server.flags)}", flush=True)
        raise
    finally:
        trial.close()
    print(f"soak: {family}: " + ", ".join(f"{count} {what}" for what, count in trial.counts.items()) +
          "; tokens found: " + ", ".join(f"{tokens} {tier}" for tier, tokens in trial.hits.items()), flush=True)
    shutil.rmtree(folder)
    return trial.hits


SEEDS_MORE = 4


def missing(hits):
    """Tiers in which nobody found anything."""
    return [tiers for tiers in (["device"], ["host"], ["disk", "remote"])
            if not any(of_family[tier] for of_family in hits for tier in tiers)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("--reference", help="another build of the program, for what answers must be")
    parser.add_argument("--families", nargs="+", default=["gemma3", "deepseek_v3"])
    parser.add_argument("--answers", type=int, default=480)
    parser.add_argument("--device", default="cpu", help="what models are computed on: cpu, cuda or cuda:N")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.reference = args.reference or args.program
    hits = [soak(args, family) for family in args.families]
    for args.seed in range(args.seed + 1, args.seed + 1 + SEEDS_MORE):  # faults may take all that lower tiers have
        if missing(hits):
            hits.append(soak(args, args.families[0]))
    for tiers in missing(hits):
        print(f"soak: nothing was found in {' or '.join(tiers)}: this has shown nothing of it")
    return 1 if missing(hits) else 0


if __name__ == "__main__":
    sys.exit(main())
