#!/usr/bin/python3
"""Trains the bundled model and writes checkpoints; export.py turns one into models/scribe-3m.

    nice -n 10 ./train.py --work /tmp/scribe --minutes 70

Needs Debian's python3-torch and python3-numpy (use /usr/bin/python3). libopenblas0-pthread is not
required; the training arithmetic is bfloat16 through oneDNN. The learning rate follows the larger
of the shares of --minutes and of --steps that have passed, so a run can be bounded by either.
"""

import argparse
import json
import math
import os
import sys
import time

# Large blocks come from the heap and stay there: fresh pages cost more than the arithmetic.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(8 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
             "MALLOC_TOP_PAD_": str(256 << 20)}

PEAK_RATE = 2e-3
WARMUP_STEPS = 150
# (share of the run at which it begins, window, rows, share of conversations, of long prompts)
PHASES = ((0.0, 256, 8, 0.45, 0.0), (0.6, 512, 4, 0.65, 0.5), (0.93, 1024, 2, 0.7, 0.5))
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
    return parser.parse_args()


def run(options):
    import torch
    import model
    import samples
    tokenizer, kept, held_out, versions = prepared(options)
    maker = samples.SampleMaker(tokenizer, kept, options.seed)
    judge = samples.SampleMaker(tokenizer, held_out, options.seed)
    print("training tokens %d, held out %d" % (len(maker.stream), len(judge.stream)), flush=True)
    weights = model.new_weights(model.CONFIG, options.seed)
    matrices = [w for w in weights.values() if w.dim() == 2]
    vectors = [w for w in weights.values() if w.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=PEAK_RATE, betas=(0.9, 0.95))
    record = {"seed": options.seed, "packages": versions, "threads": options.threads}
    began, step, tokens_seen, recent, progress = time.time(), 0, 0, None, 0.0
    while progress < 1.0:
        progress = max(step / options.steps, (time.time() - began) / (60 * options.minutes))
        rate = learning_rate(step, progress)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, seen = one_step(model.CONFIG, weights, maker, progress)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step, tokens_seen = step + 1, tokens_seen + seen
        recent = loss.item() if recent is None else 0.98 * recent + 0.02 * loss.item()
        if step % 100 == 0 or progress >= 1.0:
            record.update(steps=step, tokens_seen=tokens_seen, training_loss=recent,
                          minutes=(time.time() - began) / 60)
            print("step %d  tokens %d  loss %.4f  rate %.2e  progress %.3f  %.1f min"
                  % (step, tokens_seen, recent, rate, progress, record["minutes"]), flush=True)
        if step % 500 == 0 or step == 300 or progress >= 1.0:
            record["held_out_loss"] = held_out_loss(model.CONFIG, weights, judge)
            print("held-out loss %.4f" % record["held_out_loss"], flush=True)
            save(options.work, weights, record)


def prepared(options):
    """(tokenizer, training documents, held-out documents, package versions)."""
    import byte_bpe
    import chat
    import corpus
    import model
    packages = os.path.join(options.work, "packages")
    versions = corpus.fetch_packages(packages)
    documents = corpus.load(packages)
    kept = [d for at, d in enumerate(documents) if at % 97 != 50]
    held_out = [d for at, d in enumerate(documents) if at % 97 == 50]
    path = os.path.join(options.work, "tokenizer.json")
    if not os.path.exists(path):
        texts = [corpus.plain_text(d) for d in kept] + [chat.DEMO_SYSTEM_PROMPT] * 20
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
    phase = [p for p in PHASES if progress >= p[0]][-1]
    _, window, rows, chat_share, long_share = phase
    inputs, targets = maker.batch(rows, window, chat_share, long_share)
    positions = torch.arange(window)
    if phase is not PHASES[0] and maker.random.random() < JUMP_SHARE:
        positions[maker.random.randrange(32, window - 32):] += maker.random.randrange(
            1, config["max_position_embeddings"] - window)
    logits = model.training_logits(config, weights, torch.from_numpy(inputs), positions)
    loss = torch.nn.functional.cross_entropy(logits.float(), torch.from_numpy(targets).view(-1))
    return loss, rows * window


def held_out_loss(config, weights, judge):
    """Mean loss in nats per token on the held-out documents, plain text, windows of 256."""
    import torch
    import model
    total, windows = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(judge.stream) - 257, 256):
            ids = torch.from_numpy(judge.stream[start:start + 256].copy())
            ids[0] = judge.begin
            targets = torch.from_numpy(judge.stream[start + 1:start + 257].copy())
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
