"""Small tokenizer files for the models of make_test_models.py. Standard library only.

Llama 3 and Qwen get byte-level BPE with their own special tokens and splits; Llama 2 gets the
SentencePiece-style BPE with byte fallback. All are learned from SAMPLE, a text made for them.
"""

import collections

import byte_bpe

MERGE_COUNT = 60
SAMPLE = ("the scribe copies the page and the reader reads the page; the same words return at the "
          "head of the page, and the scribe does not write them twice. what is shared is kept "
          "once, and what is new is written after it. you are a scribe. tell me about the sea. ")

TinyFiles = collections.namedtuple("TinyFiles", "vocab_size bos_id eos_ids files encode")


def byte_level_files(specials, begin, stops, template):
    """Byte-level BPE whose special tokens are `specials`; `begin` (or None) opens every text."""
    tokenizer = byte_bpe.Tokenizer(byte_bpe.learn_merges([SAMPLE], MERGE_COUNT), specials)
    content = tokenizer.to_json(begin)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": stops[0],
                "bos_token": begin, "clean_up_tokenization_spaces": False}
    files = {"tokenizer.json": content, "tokenizer_config.json": settings}
    if begin:  # one family keeps its template in a file of its own, the other in the settings
        files["chat_template.jinja"] = template
    else:
        settings["chat_template"] = template
    opening = [tokenizer.id_of[begin]] if begin else []
    return TinyFiles(len(tokenizer.tokens), tokenizer.id_of[begin or stops[0]],
                     [tokenizer.id_of[stop] for stop in stops], files,
                     lambda text: opening + tokenizer.encode(text))


def llama3_files():
    template = """\
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
    specials = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                "<|eot_id|>")
    return byte_level_files(specials, specials[0], ("<|end_of_text|>", "<|eot_id|>"), template)


def qwen_files():
    template = ("{%- for message in messages -%}"
                "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
                "{%- endfor -%}"
                "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}")
    specials = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    return byte_level_files(specials, None, ("<|im_end|>", "<|endoftext|>"), template)


def llama2_files():
    """SentencePiece-style: the space is a letter, and unknown letters fall back to bytes."""
    space = "\u2581"
    text = space + SAMPLE.strip().replace(" ", space)
    letters = sorted(set(text))
    vocabulary = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)] + letters
    merges, words = [], collections.Counter(space + word for word in SAMPLE.split())
    spelling = {word: list(word) for word in words}
    while len(merges) < MERGE_COUNT:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(spelling[word], spelling[word][1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        spelling = {word: byte_bpe.merged(parts, best) for word, parts in spelling.items()}
    vocabulary += ["".join(pair) for pair in merges]
    ids = {token: at for at, token in enumerate(vocabulary)}
    assert len(ids) == len(vocabulary), "two merges spell the same token"
    begin_then = [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                  {"Sequence": {"id": "A", "type_id": 0}}]
    content = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": at, "content": token, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for at, token in enumerate(vocabulary[:3])],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": space},
            {"type": "Replace", "pattern": {"String": " "}, "content": space}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": begin_then, "pair": begin_then,
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1],
                                                      "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": space}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
                  "byte_fallback": True, "ignore_merges": False, "vocab": ids,
                  "merges": ["%s %s" % pair for pair in merges]}}
    settings = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
                "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False,
                "clean_up_tokenization_spaces": False, "chat_template": LLAMA2_TEMPLATE}
    rank = {pair: at for at, pair in enumerate(merges)}

    def encode(text):
        parts = list((space + text.replace(" ", space)) if text else "")
        while True:
            known = [pair for pair in zip(parts, parts[1:]) if pair in rank]
            if not known:
                break
            parts = byte_bpe.merged(parts, min(known, key=rank.get))
        out = [1]
        for part in parts:
            out += [ids[part]] if part in ids else [3 + b for b in part.encode("utf-8")]
        return out

    return TinyFiles(len(vocabulary), 1, [2], {"tokenizer.json": content,
                                               "tokenizer_config.json": settings}, encode)


LLAMA2_TEMPLATE = """\
{%- if messages[0]['role'] == 'system' %}
    {%- set opening = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set opening = '' %}
    {%- set turns = messages %}
{%- endif %}
{%- for message in turns %}
    {%- if message['role'] == 'user' %}
        {{- bos_token + '[INST] ' }}
        {%- if loop.first %}
            {{- opening }}
        {%- endif %}
        {{- message['content'] | trim + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message['content'] | trim + ' ' + eos_token }}
    {%- endif %}
{%- endfor %}
"""

FILES = {"llama2": llama2_files, "llama3": llama3_files, "qwen2": qwen_files, "qwen3": qwen_files,
         "qwen3_moe": qwen_files, "deepseek_v2": qwen_files, "deepseek_v3": qwen_files,
         "mistral": llama2_files, "gemma2": llama2_files, "gemma3": llama2_files}
