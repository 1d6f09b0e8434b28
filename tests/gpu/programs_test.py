#!/usr/bin/env python3
"""What people run on a GPU: `stemma generate` and `stemma serve --device cuda`, and the Python package.

    tests/gpu/programs_test.py build/release/stemma_emulated build/release/python_emulated
    tests/gpu/programs_test.py build/cuda/stemma build/cuda/python

The second folder may be missing, or of another interpreter: then tests of the package are skipped.
"""

import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/scribe-3m"
sys.path.insert(0, str(ROOT / "tests/soak"))
from served import Served  # noqa: E402

TEXT = "The cat sat on the wall and looked at the moon, for it was late, and no one came along the road. " * 2
ON_A_GPU = ["--device", "cuda", "--deterministic"]
PROGRAM = ""


def generate(*flags):
    words = [PROGRAM, "generate", "--model", MODEL, "--prompt", TEXT, "--max-tokens", "3", *flags]
    return subprocess.run(words, capture_output=True, text=True)


class Generate(unittest.TestCase):
    def test_a_text_does_not_depend_on_how_its_prompt_is_cut(self):
        texts = [generate(*ON_A_GPU, "--chunk-tokens", tokens) for tokens in ("300", "16")]
        self.assertEqual([text.returncode for text in texts], [0, 0], texts[0].stderr)
        self.assertTrue(texts[0].stdout.strip())
        self.assertEqual(texts[0].stdout, texts[1].stdout)

    def test_a_gpu_that_is_not_there_is_named(self):
        gone = generate("--device", "cuda:4096")
        self.assertEqual(gone.returncode, 1)
        self.assertIn("4096", gone.stderr)


class Serve(unittest.TestCase):
    # Memory for one text: another one drives it out to the host.
    FLAGS = ["--page-size", "16", "--kv-bytes", "128KiB", "--host-bytes", "4MiB", "--concurrency", "4",
             "--write-policy", "write-through", "--load-wait-ms", "10000"]

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.log = f"{cls.folder.name}/log"
        cls.server = Served(PROGRAM, MODEL, cls.FLAGS + ON_A_GPU, cls.log)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.end()
        cls.folder.cleanup()
        if code != 0:
            raise AssertionError(f"the server ended with {code}")

    def complete(self, prompt, **options):
        body = {"prompt": prompt, "max_tokens": 3, "temperature": 0, "logprobs": 2, "return_token_ids": True} | options
        status, text = self.server.ask("POST", "/v1/completions", body)
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        usage = answer["usage"]
        return ({key: answer["choices"][0][key] for key in ("text", "token_ids", "logprobs")},
                usage["prompt_tokens_details"]["cached_tokens"])

    def test_an_answer_is_the_same_from_every_tier_and_in_every_batch(self):
        cold, found = self.complete(TEXT)
        self.assertEqual(found, 0)
        warm, found = self.complete(TEXT)
        self.assertGreater(found, 0)
        self.assertEqual(warm, cold)
        with concurrent.futures.ThreadPoolExecutor(3) as clients:
            others = [clients.submit(self.complete, text) for text in (TEXT[5:], TEXT[:60], TEXT[9:200])]
            together, _ = self.complete(TEXT)
            for other in others:
                other.result()
        self.assertEqual(together, cold)
        after, _ = self.complete(TEXT)
        self.assertEqual(after, cold)
        status, text = self.server.ask("GET", "/metrics")
        self.assertEqual(status, 200, text)
        self.assertTrue(re.search(r'stemma_hit_tokens_total\{source="host"\} [1-9]', text), "nothing came from host memory")

    def test_an_answer_comes_in_pieces(self):
        whole, _ = self.complete(TEXT[:40])
        body = {"prompt": TEXT[:40], "max_tokens": 3, "temperature": 0, "stream": True}
        status, text = self.server.ask("POST", "/v1/completions", body)
        self.assertEqual(status, 200, text)
        pieces = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        self.assertEqual("".join(piece["choices"][0]["text"] for piece in pieces if piece["choices"]), whole["text"])


class Package(unittest.TestCase):
    def setUp(self):
        try:
            import stemma
        except ImportError as error:
            self.skipTest(str(error))
        self.stemma = stemma

    def test_a_prompt_that_was_computed_is_found(self):
        with self.stemma.LLM(MODEL, device="cuda", deterministic=True, kv_bytes=8 << 20) as llm:
            first, again = (llm.generate(TEXT[:90], {"max_tokens": 3})[0] for _ in range(2))
            self.assertGreater(again.num_cached_tokens, first.num_cached_tokens)
            self.assertEqual(again.outputs[0].token_ids, first.outputs[0].token_ids)

    def test_prompts_together_have_the_outputs_that_they_have_alone(self):
        prompts = [TEXT[:30], TEXT[4:50], TEXT[7:20]]
        with self.stemma.LLM(MODEL, device="cuda:0", deterministic=True, cache="none", kv_bytes=8 << 20) as llm:
            alone = [llm.generate(prompt, {"max_tokens": 3})[0].outputs[0].token_ids for prompt in prompts]
            together = [output.outputs[0].token_ids for output in llm.generate(prompts, {"max_tokens": 3})]
        self.assertEqual(together, alone)

    def test_a_pool_is_on_the_gpu(self):
        pool = self.stemma.Pool(layers=2, pages=4, page_size=2, heads=1, head_dim=8, dtype="bf16", device="cuda")
        self.assertEqual(pool.k(0).__dlpack_device__(), (2, 0))
        pool.copy_page(1, 3)
        pool.record_use(0)
        with self.assertRaises(BufferError):
            memoryview(pool.k(0))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    package = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if pathlib.Path(package).is_dir():
        sys.path.insert(0, package)
    unittest.main()
