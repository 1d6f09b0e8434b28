#!/usr/bin/env python3
"""Prefix caches with mini-SGLang's contract side by side: match, insert, lock and unlock, evict, in microseconds an
operation, at 1,000, 10,000 and 100,000 nodes. The reference is a radix tree in plain Python, written here. Wants torch.

  PYTHONPATH=build/release/python python3 bindings/python/bench_trees.py [--nodes 1000 10000] [MODULE:FACTORY ...]

FACTORY(page_size) gives another object with that contract to measure. Texts are 64 tokens behind a shared begin of 64.
"""

import argparse
import gc
import importlib
import random
import sys
import time

import torch

sys.path.pop(0)  # beside this file lies the package without its module
from stemma.compat_minisgl import InsertResult, MatchResult, SizeInfo, StemmaPrefixCache  # noqa: E402

SHARED_TOKENS, OWN_TOKENS = 64, 64
TEXTS_PER_BEGIN = 50
OPERATIONS = 500


class Node:
    __slots__ = ("parent", "key", "slots", "children", "locks", "used")

    def __init__(self, parent, key, slots, locks, used):
        self.parent, self.key, self.slots, self.locks, self.used = parent, key, slots, locks, used
        self.children = {}


class Handle:
    __slots__ = ("node", "cached_len")

    def __init__(self, node, cached_len):
        self.node, self.cached_len = node, cached_len

    def get_matched_indices(self):
        parts, node = [], self.node
        while node.parent is not None:
            parts.append(node.slots)
            node = node.parent
        return torch.cat(parts[::-1]) if parts else torch.empty(0, dtype=torch.int32)


class PlainRadixTree:
    """A radix tree over lists of tokens, page_size 1, evicting the leaf that was used longest ago."""

    def __init__(self, page_size=1):
        self.root = Node(None, [], torch.empty(0, dtype=torch.int32), 1, 0)
        self.clock = self.evictable = self.protected = 0

    def _walk(self, tokens):
        node, at = self.root, 0
        self.clock += 1
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                break
            key, common = child.key, 0
            while common < len(key) and at + common < len(tokens) and key[common] == tokens[at + common]:
                common += 1
            node = child if common == len(key) else self._split(child, common)
            node.used = self.clock
            at += common
        return node, at

    def _split(self, node, at):
        upper = Node(node.parent, node.key[:at], node.slots[:at], node.locks, node.used)
        node.parent.children[node.key[0]] = upper
        upper.children[node.key[at]] = node
        node.parent, node.key, node.slots = upper, node.key[at:], node.slots[at:]
        return upper

    def match_prefix(self, input_ids):
        return MatchResult(Handle(*self._walk(input_ids.tolist())))

    def insert_prefix(self, input_ids, indices):
        tokens = input_ids.tolist()
        node, at = self._walk(tokens)
        if at < len(tokens):
            leaf = Node(node, tokens[at:], indices[at:].clone(), 0, self.clock)
            node.children[tokens[at]] = leaf
            node = leaf
            self.evictable += len(tokens) - at
        return InsertResult(at, Handle(node, len(tokens)))

    def lock_handle(self, handle, unlock=False):
        node, step = handle.node, -1 if unlock else 1
        while node.parent is not None:
            was_locked = node.locks > 0
            node.locks += step
            if was_locked != (node.locks > 0):
                self.protected += step * len(node.key)
                self.evictable -= step * len(node.key)
            node = node.parent

    def evict(self, size):
        slots, stack, leaves = [], [self.root], []
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if not node.children and node.locks == 0:
                leaves.append(node)
        leaves.sort(key=lambda leaf: leaf.used, reverse=True)
        while size > 0:
            leaf = leaves.pop()
            slots.append(leaf.slots)
            size -= len(leaf.key)
            self.evictable -= len(leaf.key)
            del leaf.parent.children[leaf.key[0]]
            if not leaf.parent.children and leaf.parent.locks == 0:
                leaves.append(leaf.parent)
                leaves.sort(key=lambda leaf: leaf.used, reverse=True)
        return torch.cat(slots)

    @property
    def size_info(self):
        return SizeInfo(self.evictable, self.protected)


def texts_of(nodes, generator):
    """As many texts as give about so many nodes: a leaf each, and a node for each shared begin."""
    texts = []
    while len(texts) * (1 + 1 / TEXTS_PER_BEGIN) < nodes:
        if len(texts) % TEXTS_PER_BEGIN == 0:
            begin = torch.randint(0, 128_000, (SHARED_TOKENS,), generator=generator, dtype=torch.int32)
        own = torch.randint(0, 128_000, (OWN_TOKENS,), generator=generator, dtype=torch.int32)
        texts.append(torch.cat([begin, own]))
    return texts


def us_each(count, work):
    gc.collect()
    gc.disable()
    begin = time.perf_counter_ns()
    for i in range(count):
        work(i)
    total = time.perf_counter_ns() - begin
    gc.enable()
    return total / count / 1000


def measure(cache, nodes):
    generator = torch.Generator().manual_seed(1)
    texts = texts_of(nodes, generator)
    slots = torch.arange(SHARED_TOKENS + OWN_TOKENS, dtype=torch.int32)
    fresh = texts_of(2 * OPERATIONS, generator)[:OPERATIONS]
    for text in texts:
        cache.insert_prefix(text, slots)
    order = random.Random(1).choices(texts, k=OPERATIONS)
    handles = []

    def lock_and_unlock(i):
        cache.lock_handle(handles[i])
        cache.lock_handle(handles[i], unlock=True)

    match = us_each(OPERATIONS, lambda i: handles.append(cache.match_prefix(order[i]).cuda_handle))
    lock = us_each(OPERATIONS, lock_and_unlock)
    insert = us_each(OPERATIONS, lambda i: cache.insert_prefix(fresh[i], slots))
    evict = us_each(min(OPERATIONS, 50), lambda i: cache.evict(OWN_TOKENS))
    return match, insert, lock, evict


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("others", nargs="*", metavar="MODULE:FACTORY")
    flags = parser.parse_args()
    makers = {"stemma": lambda: StemmaPrefixCache("cpu", 1, 8 << 20), "plain Python": PlainRadixTree}
    for other in flags.others:
        module, factory = other.split(":")
        makers[other] = lambda make=getattr(importlib.import_module(module), factory): make(1)
    print(f"{'nodes':>8}  {'cache':<16} {'match':>9} {'insert':>9} {'lock+unlock':>12} {'evict':>11}   us an operation")
    for nodes in flags.nodes:
        for name, make in makers.items():
            match, insert, lock, evict = measure(make(), nodes)
            print(f"{nodes:8}  {name:<16} {match:9.2f} {insert:9.2f} {lock:12.2f} {evict:11.2f}")


if __name__ == "__main__":
    main()
