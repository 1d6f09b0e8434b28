"""Byte-level BPE: learning merges, encoding, decoding, and the tokenizer.json it is kept in.

Standard library only. The pre-tokenizer pattern cuts text into words, digit groups, punctuation
and white space, each with at most one leading space; merges never cross a cut.
"""

import collections
import json
import re

PATTERN = r" ?\p{L}+(?:'\p{L}+)?| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"
PATTERN_RE = re.compile(PATTERN.replace(r"[^\s\p{L}\p{N}]", r"(?:[^\s\w]|_)")
                        .replace(r"\p{L}", r"[^\W\d_]").replace(r"\p{N}", r"\d"))
SPECIALS = ("<|begin_of_text|>", "<|end_of_text|>", "<|system|>", "<|user|>", "<|assistant|>",
            "<|end|>")


def byte_letters():
    """The printable stand-in of each byte in the files: itself where visible, else U+0100 on."""
    letters, hidden = {}, 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + hidden)
            hidden += 1
    return letters


LETTERS = byte_letters()
BYTES = {letter: byte for byte, letter in LETTERS.items()}


def pieces_of(text):
    return PATTERN_RE.findall(text)


def spelled(piece):
    return tuple(LETTERS[b] for b in piece.encode("utf-8"))


def learn_merges(texts, merge_count):
    """The `merge_count` most frequent pairs, one after another; ties go to the smaller pair."""
    counts = collections.Counter()
    for text in texts:
        counts.update(pieces_of(text))
    words = [[list(spelled(piece)), n] for piece, n in sorted(counts.items())]
    pairs, places = collections.Counter(), collections.defaultdict(set)
    for at, (letters, n) in enumerate(words):
        for pair in zip(letters, letters[1:]):
            pairs[pair] += n
            places[pair].add(at)
    merges = []
    while len(merges) < merge_count and pairs:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < 2:
            break
        merges.append(best)
        for at in places.pop(best):
            letters, n = words[at]
            for pair in zip(letters, letters[1:]):
                pairs[pair] -= n
            letters[:] = merged(letters, best)
            for pair in zip(letters, letters[1:]):
                pairs[pair] += n
                places[pair].add(at)
        pairs = +pairs
    return merges


def merged(letters, pair):
    out, at = [], 0
    while at < len(letters):
        if at + 1 < len(letters) and (letters[at], letters[at + 1]) == pair:
            out.append(letters[at] + letters[at + 1])
            at += 2
        else:
            out.append(letters[at])
            at += 1
    return out


class Tokenizer:
    """Token ids: the 256 bytes, then one per merge in order, then the special tokens."""

    def __init__(self, merges, specials=SPECIALS):
        self.specials = specials
        self.special_cut = re.compile("(" + "|".join(re.escape(s) for s in specials) + ")")
        self.merges = [tuple(pair) for pair in merges]
        self.rank = {pair: at for at, pair in enumerate(self.merges)}
        tokens = [LETTERS[b] for b in range(256)] + [a + b for a, b in self.merges]
        tokens += specials
        self.tokens = tokens
        self.id_of = {token: at for at, token in enumerate(tokens)}
        assert len(self.id_of) == len(tokens), "two merges spell the same token"
        self.known = {}

    @staticmethod
    def load(path):
        with open(path, encoding="utf-8") as f:
            return Tokenizer(m.split(" ") for m in json.load(f)["model"]["merges"])

    def encode(self, text):
        """Ids of `text`, in which the special tokens' own texts stand for those tokens."""
        ids = []
        for part in self.special_cut.split(text):
            if part in self.specials:
                ids.append(self.id_of[part])
                continue
            for piece in pieces_of(part):
                if piece not in self.known:
                    self.known[piece] = self.encode_piece(piece)
                ids += self.known[piece]
        return ids

    def encode_piece(self, piece):
        letters = list(spelled(piece))
        while len(letters) > 1:
            pair = min(zip(letters, letters[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
            if pair not in self.rank:
                break
            letters = merged(letters, pair)
        return [self.id_of[letter] for letter in letters]

    def decode(self, ids):
        spelling = "".join(self.tokens[i] for i in ids if self.tokens[i] not in self.specials)
        return bytes(BYTES[letter] for letter in spelling).decode("utf-8", "replace")

    def to_json(self, begin=SPECIALS[0]):
        """The tokenizer.json document; every text opens with `begin`, if given."""
        first_special = len(self.tokens) - len(self.specials)
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                      "use_regex": False}
        return {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [
                {"id": first_special + at, "content": special, "single_word": False,
                 "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                for at, special in enumerate(self.specials)],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated",
                 "invert": False}, byte_level]},
            "post_processor": self.opening(begin) if begin else byte_level,
            "decoder": dict(byte_level, add_prefix_space=True, use_regex=True),
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {t: i for i, t in enumerate(self.tokens[:first_special])},
                      "merges": ["%s %s" % pair for pair in self.merges]}}

    def opening(self, begin):
        """The post-processor that puts `begin` before every text."""
        def special(type_id):
            return {"SpecialToken": {"id": begin, "type_id": type_id}}

        def sequence(name, type_id):
            return {"Sequence": {"id": name, "type_id": type_id}}

        return {"type": "TemplateProcessing", "single": [special(0), sequence("A", 0)],
                "pair": [special(0), sequence("A", 0), special(1), sequence("B", 1)],
                "special_tokens": {begin: {"id": begin, "ids": [self.id_of[begin]],
                                           "tokens": [begin]}}}
