#!/usr/bin/python3
"""Turns a checkpoint of train.py into a model folder, and proves the written files by using them.

    ./export.py --work /tmp/scribe --out ../../models/scribe-3m \\
        --golden ../../tests/golden/scribe-3m.json --prompts ../../demo/prompts.jsonl

The files are read back, and the printed texts and the golden figures come from what was read.
"""

import argparse
import json
import os
import shutil

import numpy
import torch

import byte_bpe
import card
import chat
import model
import safetensors_io

GOLDEN_PROMPTS = ("In the beginning", "She was not at all surprised to find that Mr. Darcy")
GOLDEN_STEPS = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", required=True, help="the folder given to train.py")
    parser.add_argument("--out", required=True, help="model folder to write")
    parser.add_argument("--golden", help="golden file to write")
    parser.add_argument("--prompts", help="requests, one JSON object a line, for the samples")
    parser.add_argument("--samples", type=int, default=4, help="how many of them to answer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.makedirs(options.out, exist_ok=True)
    write_model(options.work, options.out)
    weights = read_weights(os.path.join(options.out, "model.safetensors"))
    tokenizer = byte_bpe.Tokenizer.load(os.path.join(options.out, "tokenizer.json"))
    if options.golden:
        write_json(options.golden, golden(weights, tokenizer))
    samples = []
    if options.prompts:
        with open(options.prompts, encoding="utf-8") as f:
            requests = [json.loads(line) for line in f]
        for at, request in enumerate(requests[:options.samples]):
            samples.append(answered(weights, tokenizer, request, at))
            print(samples[-1], flush=True)
    with open(os.path.join(options.work, "record.json"), encoding="utf-8") as f:
        record = json.load(f)
    with open(os.path.join(options.out, "README.md"), "w", encoding="utf-8") as f:
        f.write(card.written(model.CONFIG, record, samples))


def write_model(work, out):
    checkpoint = safetensors_io.read(os.path.join(work, "checkpoint.safetensors"))
    tensors = {name: ("BF16", shape, bfloat16_bytes(content))
               for name, (_, shape, content) in checkpoint.items()}
    safetensors_io.write(os.path.join(out, "model.safetensors"), tensors, {"format": "pt"})
    shutil.copy(os.path.join(work, "tokenizer.json"), os.path.join(out, "tokenizer.json"))
    write_json(os.path.join(out, "config.json"), model.CONFIG)
    tokenizer = byte_bpe.Tokenizer.load(os.path.join(out, "tokenizer.json"))
    begin, finish, turn_end = (tokenizer.id_of[s] for s in ("<|begin_of_text|>",
                                                            "<|end_of_text|>", "<|end|>"))
    assert [begin, finish] == [model.CONFIG["bos_token_id"], model.CONFIG["eos_token_id"]]
    write_json(os.path.join(out, "generation_config.json"),
               {"bos_token_id": begin, "eos_token_id": [finish, turn_end]})
    write_json(os.path.join(out, "tokenizer_config.json"),
               {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>",
                "eos_token": "<|end_of_text|>", "add_bos_token": True,
                "clean_up_tokenization_spaces": False,
                "model_max_length": model.CONFIG["max_position_embeddings"]})
    with open(os.path.join(out, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(chat.TEMPLATE)


def bfloat16_bytes(content):
    """float32 bytes to bfloat16 bytes, to the nearest, ties to even."""
    bits = numpy.frombuffer(content, dtype="<u4").astype(numpy.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def read_weights(path):
    """{name: float32 tensor} of a bfloat16 file."""
    weights = {}
    for name, (dtype, shape, content) in safetensors_io.read(path).items():
        assert dtype == "BF16", dtype
        bits = numpy.frombuffer(content, dtype="<u2").astype("<u4") << 16
        weights[name] = torch.from_numpy(bits.view("<f4").reshape(shape).copy())
    return weights


def golden(weights, tokenizer):
    """Greedy continuations and last-position logits, all in float32 arithmetic."""
    entries = []
    for prompt in GOLDEN_PROMPTS:
        ids = [tokenizer.id_of["<|begin_of_text|>"]] + tokenizer.encode(prompt)
        logits = model.reference_logits(model.CONFIG, weights, ids)[-1]
        best = torch.topk(logits, 5)
        chosen = generated(weights, ids, GOLDEN_STEPS, lambda last: int(last.argmax()))
        entries.append({"prompt": prompt, "prompt_token_ids": ids,
                        "top_logits": [{"token_id": int(i), "logit": round(float(v), 5)}
                                       for v, i in zip(best.values, best.indices)],
                        "greedy_token_ids": chosen, "greedy_text": tokenizer.decode(chosen)})
    messages = [{"role": "system", "content": "You are a scribe."},
                {"role": "user", "content": "Tell me about the sea."}]
    text = chat.rendered(messages)
    return {"what": "bfloat16 weights, float32 arithmetic; compare logits within 1e-3 relative",
            "prompts": entries,
            "chat": {"messages": messages, "rendered": text, "token_ids": tokenizer.encode(text)}}


def generated(weights, ids, steps, choose, stops=()):
    ids, count = list(ids), len(ids)
    while len(ids) - count < steps:
        ids.append(choose(model.reference_logits(model.CONFIG, weights, ids)[-1]))
        if ids[-1] in stops:
            break
    return ids[count:]


def answered(weights, tokenizer, request, seed):
    """The request and its answer, greedy and sampled, as a few lines of Markdown."""
    ids = tokenizer.encode(chat.rendered(request["messages"]))
    stops = [tokenizer.id_of[s] for s in ("<|end_of_text|>", "<|end|>")]
    generator = torch.Generator().manual_seed(seed)

    def sampled(last):
        return int(torch.multinomial(torch.softmax(last / 0.6, -1), 1, generator=generator))

    lines = ["**%s**" % request["messages"][-1]["content"]]
    for name, choose in (("greedy", lambda last: int(last.argmax())), ("temperature 0.6", sampled)):
        chosen = generated(weights, ids, request.get("max_tokens", 48), choose, stops)
        lines.append("- %s: %s" % (name, tokenizer.decode(chosen).strip()))
    return "\n".join(lines) + "\n"


def write_json(path, content):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, indent=1, ensure_ascii=False)
        f.write("\n")


if __name__ == "__main__":
    main()
