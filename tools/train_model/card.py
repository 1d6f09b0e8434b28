"""The model card, written from the configuration and the record of the training."""

CARD = """\
# scribe-3m

A Llama-architecture model of {million:.2f} million parameters, made for Stemma's demo and tests: small enough
to lie in the repository ({megabytes:.1f} MB, bfloat16), large enough to print English-like text. Trained from
nothing by the scripts in `tools/train_model`, on a CPU; no make target trains.

## Architecture

`LlamaForCausalLM`: {num_hidden_layers} layers, hidden size {hidden_size}, feed-forward {intermediate_size} (SiLU),
{num_attention_heads} query heads of {head_dim} sharing {num_key_value_heads} key-value heads, RoPE (theta
{rope_theta:.0f}), RMSNorm, output tied to the embedding. {max_position_embeddings} positions; trained on windows
of 256 to 1,024 tokens, some of them with positions that leap far ahead. A token's KV is
{kv_bytes} bytes in bfloat16.

The tokenizer is byte-level BPE with {vocab_size} tokens, learned from the same text; its split pattern
is its own. Chat turns are `<|system|>`, `<|user|>` or `<|assistant|>`, the text, `<|end|>`
(`chat_template.jinja`).

## Text

| Debian package | version | text | terms |
|---|---|---|---|
| bible-kjv-text (read with bible-kjv) | {kjv} | King James Version, 1611 | copyright expired (the package's copyright file says so); the retrieval program is GPL-2+ and only reads the text out |
| r-cran-janeaustenr | {austen} | Jane Austen's six novels, 1811-1818 | copyright expired; the package around them is MIT |

`corpus.py` fetches the packages with `apt-get download`. The system prompts and the forms of the
requests in the conversations are in `chat.py`.

## Training

{steps} steps, {tokens_seen} tokens, {minutes:.0f} minutes of a shared CPU core, seed {seed}. Plain passages
and conversations ("Continue: ...", "Tell me about ...") in turn; the loss leaves out the system
prompt. AdamW for the first 500 steps, then Muon for the matrices of the layers and AdamW for the
rest; warm-up, cosine decay, clipped gradients, bfloat16 arithmetic over float32 weights; the
shelves and windows of each phase are in `train.py`. Runs (a later one goes on from an earlier one's
checkpoint, at the given share of the schedule): {runs}.

Training loss at the end {training_loss:.2f} nats a token; held out, as plain text: scripture
{scripture:.2f}, novels {novels:.2f}.

    /usr/bin/python3 tools/train_model/train.py --work DIR --minutes N     # python3-torch, python3-numpy
    /usr/bin/python3 tools/train_model/export.py --work DIR --out models/scribe-3m \\
        --golden tests/golden/scribe-3m.json --prompts demo/prompts.jsonl

The schedule follows the clock, so another machine makes other weights.

## Samples

Computed from the files of this folder in float32, with the demo's system prompt.

{samples}
## What it is not

It knows nothing and understands nothing: it strings together the language of its two shelves, in
the voices and with the views of their centuries. It follows requests by chance, and repeats
itself when decoded greedily; a temperature reads better. Use it to try out Stemma, and for
nothing else.
"""


def written(config, record, samples):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    hidden, inner, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    layers = config["num_hidden_layers"]
    layer = hidden * (2 * heads * d + 2 * kv_heads * d + 3 * inner + 2)
    parameters = layers * layer + hidden * (config["vocab_size"] + 1)
    runs = "; ".join("from step %d, at %.2f, planned for %g minutes"
                     % (r["from_step"], r["from_progress"], r["minutes"]) for r in record["runs"])
    return CARD.format(
        million=parameters / 1e6, megabytes=2 * parameters / 1e6,
        kv_bytes=2 * 2 * layers * kv_heads * d, kjv=record["packages"]["bible-kjv-text"],
        austen=record["packages"]["r-cran-janeaustenr"], runs=runs,
        scripture=record["held_out_loss"]["scripture"], novels=record["held_out_loss"]["novels"],
        samples="\n".join(samples), **config,
        **{name: record[name] for name in ("steps", "tokens_seen", "minutes", "seed",
                                           "training_loss")})
