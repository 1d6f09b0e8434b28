#!/usr/bin/env python3
"""The formats that the training scripts write: byte-level BPE, tokenizer.json, safetensors.

Standard library only: python3 -m unittest discover -s tools/train_model -p '*_test.py'
"""

import json
import os
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import byte_bpe  # noqa: E402
import chat  # noqa: E402
import safetensors_io  # noqa: E402

SAMPLE = "the page and the reader; the page, the page and the scribe"


class ByteBpeTest(unittest.TestCase):
    def setUp(self):
        self.tokenizer = byte_bpe.Tokenizer(byte_bpe.learn_merges([SAMPLE], 12))

    def test_every_byte_has_its_own_letter(self):
        self.assertEqual(len(set(byte_bpe.LETTERS.values())), 256)
        self.assertEqual(byte_bpe.LETTERS[ord(" ")], "\u0120")
        self.assertEqual(byte_bpe.LETTERS[ord("\n")], "\u010a")
        self.assertEqual(byte_bpe.LETTERS[0xAD], "\u0143")

    def test_pieces_hold_at_most_one_leading_space_and_lose_nothing(self):
        text = "it's  two -- 12345\n\nx_y caf\u00e9"
        pieces = byte_bpe.pieces_of(text)
        self.assertEqual("".join(pieces), text)
        self.assertEqual(pieces[:3], ["it's", "  ", "two"])
        self.assertIn(" 123", pieces)

    def test_the_most_frequent_pair_is_merged_first(self):
        self.assertEqual(byte_bpe.learn_merges(["ab ab ab cd"], 1), [("a", "b")])

    def test_ties_go_to_the_smaller_pair(self):
        self.assertEqual(byte_bpe.learn_merges(["cd ab cd ab"], 1), [("a", "b")])

    def test_decoding_returns_what_was_encoded(self):
        for text in (SAMPLE, "", "new words, caf\u00e9 \u4e2d\u6587 \U0001f600\n\t  end"):
            self.assertEqual(self.tokenizer.decode(self.tokenizer.encode(text)), text)

    def test_merges_shorten_what_they_were_learned_from(self):
        self.assertLess(len(self.tokenizer.encode(SAMPLE)), len(SAMPLE) // 2)

    def test_special_tokens_stand_for_themselves(self):
        ids = self.tokenizer.encode("the<|end|>the")
        self.assertIn(self.tokenizer.id_of["<|end|>"], ids)
        self.assertEqual(self.tokenizer.decode(ids), "thethe")

    def test_a_written_tokenizer_reads_back_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(self.tokenizer.to_json(), f)
            again = byte_bpe.Tokenizer.load(path)
        self.assertEqual(again.tokens, self.tokenizer.tokens)
        self.assertEqual(again.encode(SAMPLE), self.tokenizer.encode(SAMPLE))


class ChatTest(unittest.TestCase):
    def test_rendering_marks_each_turn(self):
        messages = [{"role": "system", "content": " s "}, {"role": "user", "content": "u\n"}]
        self.assertEqual(chat.rendered(messages),
                         "<|begin_of_text|><|system|>s<|end|><|user|>u<|end|><|assistant|>")


class SafetensorsTest(unittest.TestCase):
    def test_what_is_written_reads_back(self):
        tensors = {"a": ("F32", (2, 1), struct.pack("<2f", 1.5, -2)),
                   "b": ("BF16", (3,), b"012345")}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.safetensors")
            safetensors_io.write(path, tensors, {"format": "pt"})
            self.assertEqual(safetensors_io.read(path), tensors)
            with open(path, "rb") as f:
                header_bytes, = struct.unpack("<Q", f.read(8))
            self.assertEqual(header_bytes % 8, 0)
            self.assertEqual(os.path.getsize(path), 8 + header_bytes + 14)


if __name__ == "__main__":
    unittest.main()
