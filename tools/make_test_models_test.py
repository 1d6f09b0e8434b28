#!/usr/bin/env python3
"""The tiny random models: complete, the same from the same seed, and one set of values per seed."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "train_model"), os.path.join(HERE, "test_models")]

import make_test_models  # noqa: E402
import safetensors_io  # noqa: E402
import tiny_forward  # noqa: E402


def made(folder, *arguments):
    subprocess.run([sys.executable, os.path.join(HERE, "make_test_models.py"), "--out", folder,
                    *arguments], check=True)


def tensors_in(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(safetensors_io.read(os.path.join(folder, name)))
    return tensors


def json_in(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return json.load(f)


class MakeTestModelsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def test_every_family_holds_the_tensors_its_config_asks_for(self):
        made(self.folder)
        for family in make_test_models.FAMILIES:
            folder = os.path.join(self.folder, family)
            config = json_in(folder, "config.json")
            shapes = {n: shape for n, (_, shape, _) in tensors_in(folder).items()}
            self.assertEqual(shapes, make_test_models.weight_shapes(config))
            self.assertEqual("lm_head.weight" in shapes, not config["tie_word_embeddings"])
            tokens = json_in(folder, "tokenizer.json")
            ids = set(tokens["model"]["vocab"].values()) | {t["id"] for t in tokens["added_tokens"]}
            self.assertEqual(ids, set(range(config["vocab_size"])))

    def test_shards_hold_the_same_tensors_and_the_index_finds_them(self):
        one, three = os.path.join(self.folder, "one"), os.path.join(self.folder, "three")
        made(one, "--family", "qwen3", "--dtype", "bf16")
        made(three, "--family", "qwen3", "--dtype", "bf16", "--shards", "3")
        self.assertEqual(tensors_in(one), tensors_in(three))
        index = json_in(three, "model.safetensors.index.json")
        self.assertEqual(len(set(index["weight_map"].values())), 3)
        for name, shard in index["weight_map"].items():
            self.assertIn(name, safetensors_io.read(os.path.join(three, shard)))

    def test_another_seed_gives_other_values(self):
        first, second = (os.path.join(self.folder, n) for n in "ab")
        made(first, "--family", "llama2", "--seed", "1")
        made(second, "--family", "llama2", "--seed", "2")
        self.assertNotEqual(tensors_in(first), tensors_in(second))

    def test_dtypes_round_the_same_values(self):
        values = make_test_models.random_weights(
            dict(make_test_models.COMMON, vocab_size=8, **make_test_models.FAMILIES["llama2"]),
            "llama2", 5)["model.embed_tokens.weight"]
        for dtype, tolerance in (("f32", 2 ** -23), ("f16", 2 ** -10), ("bf16", 2 ** -8)):
            kept = make_test_models.decoded(make_test_models.encoded(values, dtype), dtype)
            for value, stored in zip(values, kept):
                self.assertLessEqual(abs(value - stored), tolerance * abs(value) + 1e-7)

    def test_bfloat16_ties_go_to_even(self):
        ties = [1.00390625, 1.01171875]  # halfway between two bfloat16 neighbours
        self.assertEqual(make_test_models.decoded(make_test_models.encoded(ties, "bf16"), "bf16"),
                         [1.0, 1.015625])

    def test_golden_holds_finite_logits_for_the_whole_vocabulary(self):
        made(self.folder, "--family", "llama2", "--golden")
        config = json_in(self.folder, "config.json")
        for entry in json_in(self.folder, "golden.json")["prompts"]:
            self.assertEqual(len(entry["last_logits"]), config["vocab_size"])
            best = max(range(config["vocab_size"]), key=entry["last_logits"].__getitem__)
            self.assertEqual(entry["greedy_token_ids"][0], best)

    def test_windows_are_shorter_than_a_prompt_that_is_made_for_them(self):
        windows = {}
        for family in ("mistral", "gemma2", "gemma3", "qwen2"):
            config = dict(make_test_models.COMMON, **make_test_models.FAMILIES[family])
            windows[family] = [tiny_forward.window_tokens(config, layer)
                               for layer in range(config["num_hidden_layers"])]
        self.assertEqual(windows, {"mistral": [17, 17], "gemma2": [16, None, 16],
                                   "gemma3": [11] * 5 + [None], "qwen2": [None, None]})
        encode = make_test_models.tiny_tokenizers.FILES["gemma3"]().encode
        self.assertGreater(len(encode(tiny_forward.WINDOWED_PROMPT)), 3 * 17)


if __name__ == "__main__":
    unittest.main()
