#!/usr/bin/env python3
"""What Python costs: match, lock and unlock of 8,192 cached tokens through the mini-SGLang adapter, beside the same
calls in C++ in the same process. Wants torch.

  PYTHONPATH=build/release/python python3 bindings/python/bench_overhead.py
"""

import statistics
import sys
import time

import torch

sys.path.pop(0)  # beside this file lies the package without its module
from stemma.compat_minisgl import StemmaPrefixCache  # noqa: E402

TOKENS = 8192
ROUNDS = 2000
SAMPLES = 9
GOAL_US = 15.0


def python_us(cache, ids):
    match, lock = cache.match_prefix, cache.lock_handle
    begin = time.perf_counter_ns()
    for _ in range(ROUNDS):
        handle = match(ids).cuda_handle
        lock(handle)
        lock(handle, unlock=True)
    return (time.perf_counter_ns() - begin) / ROUNDS / 1000


def main():
    worst = 0.0
    for page_size in (1, 16):
        cache = StemmaPrefixCache("cpu", page_size)
        ids = torch.randint(0, 128_000, (TOKENS,), dtype=torch.int32)
        cache.insert_prefix(ids, torch.arange(TOKENS, dtype=torch.int32))
        assert cache.match_prefix(ids).cuda_handle.cached_len == TOKENS
        calls = [(python_us(cache, ids), cache._index._time_match(ids, ROUNDS) / 1000) for _ in range(SAMPLES)]
        python, native = (statistics.median(column) for column in zip(*calls))
        worst = max(worst, python - native)
        print(
            f"page_size {page_size:2}: match + lock + unlock of {TOKENS} tokens: Python {python:.2f} us, "
            f"C++ {native:.2f} us, overhead {python - native:.2f} us (goal {GOAL_US:.0f})"
        )
    return 0 if worst <= GOAL_US else 1


if __name__ == "__main__":
    sys.exit(main())
