"""stemma.compat_sglang: SGLang's prefix caches, as its scheduler and its users know them."""

import array
import hashlib
import os
import pathlib
import subprocess
import sys
import types

import numpy
import pytest

torch = pytest.importorskip("torch")

import stemma  # noqa: E402
from stemma import compat_sglang as sglang  # noqa: E402
from stemma.compat_sglang import (  # noqa: E402
    BlockRemoved,
    BlockStored,
    CacheInitParams,
    ChunkCache,
    EvictParams,
    HiRadixCache,
    InitLoadBackParams,
    InsertParams,
    MatchPrefixParams,
    PagedTokenToKVPoolAllocator,
    RadixCache,
    RadixKey,
    ReqToTokenPool,
    StemmaHiCacheStorage,
    TokenToKVPoolAllocator,
    TreeNode,
)


def longs(*numbers):
    return torch.tensor(numbers, dtype=torch.int64)


def insert(cache, tokens, slots=None, extra_key=None, **more):
    value = None if slots is None else longs(*slots)
    return cache.insert(InsertParams(RadixKey(list(tokens), extra_key, **more), value))


def match(cache, tokens, extra_key=None, **more):
    return cache.match_prefix(MatchPrefixParams(RadixKey(list(tokens), extra_key, **more)))


def found(cache, tokens, extra_key=None, **more):
    return match(cache, tokens, extra_key, **more).device_indices.tolist()


class Freed:
    """An allocator that says what was freed."""

    device = "cpu"

    def __init__(self):
        self.slots = []

    def free(self, slots):
        self.slots.extend(slots.tolist())


# Keys.


def test_a_key_is_its_tokens_and_its_namespace():
    key = RadixKey([1, 2, 3], "tenant", cache_salt="salt")
    assert len(key) == 3 and list(key) == [1, 2, 3] and (key.extra_key, key.cache_salt) == ("tenant", "salt")
    assert len(RadixKey(array.array("q"))) == 0


def test_a_key_is_indexed_as_keys():
    key = RadixKey([10, 20, 30], "tenant")
    assert list(key[0]) == [10] and list(key[-1]) == [30] and key[0].extra_key == "tenant"
    for at in (3, 10, -4):
        with pytest.raises(IndexError):
            key[at]


def test_a_key_is_sliced_in_its_namespace():
    key = RadixKey([1, 2, 3, 4, 5], "tenant")
    assert list(key[1:4]) == [2, 3, 4] and key[1:4].extra_key == "tenant"
    assert len(key[2:2]) == 0
    with pytest.raises(ValueError):
        key[::2]


def test_a_key_of_bigrams_has_one_less_and_keeps_both_tokens_of_the_last():
    key = RadixKey([1, 2, 3, 4], is_bigram=True)
    assert len(key) == 3 and list(key[0:2]) == [1, 2, 3] and len(key[0:2]) == 2
    assert len(RadixKey([1], is_bigram=True)) == 0
    assert RadixKey([1, 2, 3, 4], is_bigram=True).match(RadixKey([1, 2, 3, 9], is_bigram=True)) == 2


def test_a_limit_hides_what_lies_behind():
    key = RadixKey([1, 2, 3, 4], limit=2)
    assert len(key) == 2 and list(key) == [1, 2]


def test_keys_are_aligned_to_pages():
    assert list(RadixKey(list(range(7))).page_aligned(4)) == [0, 1, 2, 3]
    assert RadixKey([5, 6, 7]).child_key(1) == 5 and RadixKey([5, 6, 7]).child_key(2) == (5, 6)
    assert RadixKey([5, 6], "a").child_key(2) != RadixKey([5, 6]).child_key(2)


def test_keys_match_in_whole_pages_of_one_namespace():
    one, other = RadixKey([1, 2, 3, 4, 5, 6]), RadixKey([1, 2, 3, 4, 9])
    assert one.match(other) == 4 and one.match(other, page_size=3) == 3 and one.match(one, 4) == 4
    with pytest.raises(ValueError):
        one.match(RadixKey([1], "tenant"))


def test_a_key_shows_ten_tokens():
    assert "..." not in repr(RadixKey(list(range(10))))
    shown = repr(RadixKey(list(range(100))))
    assert "9, ..." in shown and "10" not in shown


# Nodes and orders.


def test_nodes_are_counted_unless_they_are_named():
    TreeNode.counter = 0
    assert [TreeNode().id, TreeNode().id, TreeNode(id=42).id, TreeNode().id] == [0, 1, 42, 2]


@pytest.mark.parametrize("value", [None, longs(1)])
@pytest.mark.parametrize("host_value", [None, longs(1)])
def test_a_node_is_evicted_without_slots_and_backed_up_with_host_slots(value, host_value):
    node = TreeNode()
    node.value, node.host_value = value, host_value
    assert (node.evicted, node.backuped) == (value is None, host_value is not None)


def test_host_protection_is_balanced():
    node = TreeNode()
    node.protect_host()
    node.release_host()
    with pytest.raises(RuntimeError):
        node.release_host()


def test_the_last_hash_of_a_node():
    node = TreeNode()
    assert node.get_last_hash_value() is None
    node.hash_value = ["hash1", "hash2", "hash3"]
    assert node.get_last_hash_value() == "hash3"


def test_nodes_are_ordered_by_their_last_use():
    one, other = TreeNode(), TreeNode()
    one.last_access_time, other.last_access_time = 1, 2
    assert one < other and not other < one


def test_strategies_rank_by_what_their_names_say():
    node = types.SimpleNamespace(last_access_time=42.0, hit_count=5, creation_time=7.0, priority=2)
    assert sglang.LRUStrategy().get_priority(node) == 42.0
    assert sglang.FIFOStrategy().get_priority(node) == 7.0
    node.last_access_time = 3.0
    assert sglang.LFUStrategy().get_priority(node) == (5, 3.0)
    node.last_access_time, node.creation_time = 5, 3
    assert sglang.MRUStrategy().get_priority(node) == -5
    assert sglang.FILOStrategy().get_priority(node) == -3
    node.last_access_time = 4.0
    assert sglang.PriorityStrategy().get_priority(node) == (2, 4.0)


@pytest.mark.parametrize("hits, threshold, protected", [(1, 2, 0), (2, 2, 1), (100, 2, 1), (4, 5, 0), (5, 5, 1)])
def test_slru_protects_from_its_threshold_on(hits, threshold, protected):
    node = types.SimpleNamespace(last_access_time=5, hit_count=hits)
    assert sglang.SLRUStrategy(threshold).get_priority(node) == (protected, 5)


# The cache.


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("disable", [False, True])
def test_a_new_cache_is_empty(page_size, disable):
    cache = RadixCache.create_simulated(disable=disable, page_size=page_size, enable_kv_cache_events=True)
    assert cache.page_size == page_size and cache.total_size() == 0 and cache.root_node.lock_ref == 1


def test_what_was_inserted_is_matched():
    cache = RadixCache.create_simulated()
    assert insert(cache, [1, 2, 3], [10, 20, 30]).prefix_len == 0
    assert (cache.total_size(), cache.evictable_size(), cache.protected_size()) == (3, 3, 0)
    assert found(cache, [1, 2, 3]) == [10, 20, 30] and found(cache, [1, 2]) == [10, 20]
    result = match(cache, [1, 2, 3])
    assert result.device_indices.dtype == torch.int64 and result.last_device_node is result.last_host_node
    assert insert(cache, [1, 2, 3, 4], [11, 21, 31, 41]).prefix_len == 3
    assert found(cache, [1, 2, 3, 4]) == [10, 20, 30, 41]


def test_reset_forgets_all():
    cache = RadixCache.create_simulated()
    insert(cache, [1, 2, 3], [10, 20, 30])
    cache.reset()
    assert (cache.total_size(), cache.evictable_size(), cache.protected_size()) == (0, 0, 0)
    assert found(cache, [1, 2, 3]) == []


def test_a_disabled_cache_keeps_nothing():
    cache = RadixCache.create_simulated(disable=True)
    assert insert(cache, [1, 2, 3], [10, 20, 30]).prefix_len == 0
    assert found(cache, [1, 2, 3]) == [] and cache.total_size() == 0


def test_without_slots_tokens_stand_for_them():
    cache = RadixCache.create_simulated()
    insert(cache, [1, 2, 3])
    assert found(cache, [1, 2, 3]) == [1, 2, 3]
    insert(cache, [4, 5])
    assert cache.total_size() == 5


def test_namespaces_share_nothing():
    cache = RadixCache.create_simulated()
    for at, name in enumerate(("key1", "key2", None)):
        insert(cache, [1, 2, 3], [at * 10 + 1, at * 10 + 2, at * 10 + 3], name)
    assert found(cache, [1, 2, 3], "key1") == [1, 2, 3]
    assert found(cache, [1, 2, 3], "key2") == [11, 12, 13]
    assert found(cache, [1, 2, 3]) == [21, 22, 23]
    assert found(cache, [1, 2, 3], "key3") == found(cache, [1, 2, 3], "") == []


def test_the_fields_of_a_namespace_are_framed():
    cache = RadixCache.create_simulated()
    insert(cache, [1, 2], [10, 20], "bc", cache_salt="a")
    assert found(cache, [1, 2], "c", cache_salt="ab") == []
    assert found(cache, [1, 2], "bc", cache_salt="a") == [10, 20]


def test_there_may_be_more_namespaces_than_are_kept_open():
    cache = RadixCache.create_simulated()
    insert(cache, [5, 6], [50, 60])
    for at in range(3000):
        insert(cache, [1, 2], [at, at + 1], cache_salt=str(at))
    assert found(cache, [5, 6]) == [50, 60]
    assert all(found(cache, [1, 2], cache_salt=str(at)) == [at, at + 1] for at in range(3000))
    cache.sanity_check()


def test_the_least_used_namespaces_give_way_to_more_than_there_can_be(monkeypatch):
    monkeypatch.setattr(sglang, "NAMESPACES_MAX", 1024)
    cache = RadixCache.create_simulated()
    for at in range(3000):
        insert(cache, [1, 2], [at, at + 1], cache_salt=str(at))
    assert found(cache, [1, 2], cache_salt="2999") == [2999, 3000]
    assert cache.total_size() > 500
    cache.sanity_check()


def test_keys_of_bigrams_are_refused():
    cache = RadixCache.create_simulated()
    with pytest.raises(stemma.UnsupportedError):
        match(cache, [1, 2, 3], is_bigram=True)


@pytest.mark.parametrize("kind", [RadixCache, lambda params: HiRadixCache(params, types.SimpleNamespace(size=8))])
def test_caches_that_would_have_to_make_bigrams_are_refused(kind):
    with pytest.raises(stemma.UnsupportedError, match="bigrams"):
        kind(CacheInitParams(is_eagle=True, tokens_max=8))
    assert kind(CacheInitParams(is_eagle=True, disable=True, tokens_max=8)).evictable_size() == 0


def test_locks_move_tokens_between_the_sizes():
    cache = RadixCache.create_simulated()
    insert(cache, [1, 2, 3], [10, 20, 30])
    node = match(cache, [1, 2, 3]).last_device_node
    assert cache.inc_lock_ref(node).delta == -3
    assert (cache.protected_size(), cache.evictable_size(), node.lock_ref) == (3, 0, 1)
    assert cache.dec_lock_ref(node).delta == 3
    assert (cache.protected_size(), cache.evictable_size(), node.lock_ref) == (0, 3, 0)
    with pytest.raises(stemma.InvalidArgumentError):
        cache.dec_lock_ref(node)


def test_the_root_is_locked_without_effect():
    cache = RadixCache.create_simulated()
    node = match(cache, [1]).last_device_node
    assert node is cache.root_node and cache.is_root(node)
    assert cache.inc_lock_ref(node).delta == 0 and cache.dec_lock_ref(node).delta == 0


def test_eviction_frees_slots():
    freed = Freed()
    cache = RadixCache.create_simulated(mock_allocator=freed)
    insert(cache, [1, 2], [10, 20])
    insert(cache, [3, 4], [30, 40])
    assert cache.evict(EvictParams(2)).num_tokens_evicted == 2
    assert sorted(freed.slots) == [10, 20] and cache.total_size() == 2
    assert cache.evict(EvictParams(100)).num_tokens_evicted == 2
    assert cache.evict(EvictParams(100)).num_tokens_evicted == 0


def test_eviction_leaves_locked_paths():
    cache = RadixCache.create_simulated(mock_allocator=Freed())
    insert(cache, [1, 2, 3], [10, 20, 30])
    insert(cache, [1, 2, 4], [10, 20, 40])
    node = match(cache, [1, 2, 3]).last_device_node
    cache.inc_lock_ref(node)
    assert cache.evict(EvictParams(100)).num_tokens_evicted == 1
    assert found(cache, [1, 2, 3]) == [10, 20, 30]
    cache.dec_lock_ref(node)
    assert cache.evict(EvictParams(100)).num_tokens_evicted == 3


@pytest.mark.parametrize("policy, stays", [("lru", 1), ("mru", 2), ("fifo", 2), ("filo", 1), ("lfu", 1), ("slru", 1)])
def test_eviction_orders_by_name(policy, stays):
    cache = RadixCache(CacheInitParams(eviction_policy=policy, token_to_kv_pool_allocator=Freed(), tokens_max=64))
    insert(cache, [1], [10])
    insert(cache, [2], [20])
    for _ in range(3):
        match(cache, [1])
    cache.evict(EvictParams(1))
    assert found(cache, [stays]) == [stays * 10]


def test_a_higher_priority_stays_longer():
    cache = RadixCache(CacheInitParams(eviction_policy="priority", token_to_kv_pool_allocator=Freed(), tokens_max=64))
    cache.insert(InsertParams(RadixKey([1]), longs(10), priority=5))
    cache.insert(InsertParams(RadixKey([2]), longs(20), priority=1))
    cache.evict(EvictParams(1))
    assert found(cache, [1]) == [10] and found(cache, [2]) == []


def test_an_unknown_order_is_refused():
    with pytest.raises(stemma.NotFoundError):
        RadixCache(CacheInitParams(eviction_policy="no such order", tokens_max=64))


@pytest.mark.parametrize("page_size, tokens", [(1, 5), (2, 5), (4, 6)])
def test_matches_are_whole_pages(page_size, tokens):
    cache = RadixCache.create_simulated(page_size=page_size)
    insert(cache, range(tokens), range(tokens))
    length = len(found(cache, range(tokens)))
    assert length > 0 and length % page_size == 0


def test_all_slots_of_the_tree():
    cache = RadixCache.create_simulated()
    insert(cache, [1, 2], [10, 20])
    insert(cache, [3, 4], [30, 40])
    assert sorted(cache.all_values_flatten().tolist()) == [10, 20, 30, 40]
    cache.evict(EvictParams(2))
    assert sorted(cache.all_values_flatten().tolist()) == [30, 40]


@pytest.mark.parametrize("page_size", [1, 2])
def test_texts_part_where_they_differ(page_size):
    cache = RadixCache.create_simulated(page_size=page_size)
    one, other = [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9, 10]
    slots, others = [10 * t for t in one], [10 * t for t in other]
    insert(cache, one, slots)
    insert(cache, other, others)
    assert cache.total_size() == 10
    assert found(cache, [1, 2, 3, 4, 999, 1000]) == slots[:4]
    assert cache.total_size() == 10
    assert found(cache, one) == slots
    assert found(cache, [1, 2, 3, 4, 5, 6, 777, 888]) == slots[:6]
    assert found(cache, other) == slots[:2] + others[2:]
    cache.sanity_check()


def test_a_node_stays_good_when_others_split_the_tree():
    cache = RadixCache.create_simulated()
    insert(cache, [1, 2, 3, 4], [10, 20, 30, 40])
    node = match(cache, [1, 2, 3, 4]).last_device_node
    cache.inc_lock_ref(node)
    insert(cache, [1, 2, 9], [10, 20, 90])
    assert cache.protected_size() == 4
    cache.dec_lock_ref(node)
    assert cache.evictable_size() == 5


def test_many_texts_of_one_begin_keep_it_once():
    cache = RadixCache.create_simulated()
    begin = list(range(1000))
    for i in range(200):
        insert(cache, begin + [100_000 + 10 * i + j for j in range(10)])
    assert cache.total_size() == 1000 + 200 * 10


# What a scheduler asks beside.


def node(cache, tokens, extra_key=None):
    return match(cache, tokens, extra_key).last_device_node


def test_waiting_requests_are_ordered_by_how_many_share_their_begin():
    cache = RadixCache.create_simulated()
    for text in ([1, 2, 3], [1, 2, 4], [5, 6], [7]):
        insert(cache, text)
    waiting = [[7], [1, 2], [5, 6], [1, 2, 3], [9], [1, 2, 4], [5], [1, 2, 4]]
    order = cache.dfs_weight_order([node(cache, text) for text in waiting])
    assert [waiting[at] for at in order] == [[1, 2, 4], [1, 2, 4], [1, 2, 3], [1, 2], [5, 6], [5], [7], [9]]
    assert order[0] < order[1] and cache.dfs_weight_order([]) == []


def test_order_goes_by_whole_pages_and_namespaces():
    cache = RadixCache.create_simulated(page_size=2)
    insert(cache, [1, 2, 3, 4])
    insert(cache, [1, 9])
    insert(cache, [1, 2], extra_key="a")
    handles = [node(cache, [1, 9]), node(cache, [1, 2], "a"), node(cache, [1, 2]), node(cache, [1, 2, 3, 4])]
    assert cache.dfs_weight_order(handles) == [3, 2, 0, 1]


def test_order_of_texts_that_all_begin_another_needs_no_deep_stack():
    cache = RadixCache.create_simulated()
    insert(cache, range(3000))
    handles = [node(cache, range(length)) for length in range(3000)]
    assert cache.dfs_weight_order(handles) == list(range(2999, -1, -1))


def test_pages_are_hashed_in_chains_of_their_namespace():
    cache = RadixCache.create_simulated(page_size=2)
    insert(cache, [1, 2, 3, 4])
    insert(cache, [1, 2, 3, 4], extra_key="a")
    first = hashlib.sha256(numpy.array([1, 2], "<u4").tobytes()).digest()
    last = hashlib.sha256(first + numpy.array([3, 4], "<u4").tobytes()).hexdigest()
    end = node(cache, [1, 2, 3, 4])
    assert cache.get_prefix_hash_values(end) == [first.hex()] and cache.get_last_hash_value(end) == last
    assert cache.get_last_hash_value(node(cache, [1, 2])) == first.hex()
    assert cache.get_last_hash_value(node(cache, [1, 2, 3, 4], "a")) != last
    assert cache.get_last_hash_value(cache.root_node) is None and cache.get_prefix_hash_values(cache.root_node) == []


KV_EVENTS = """
import dataclasses
class KVCacheEvent: pass
@dataclasses.dataclass
class BlockStored(KVCacheEvent):
    block_hashes: list
    parent_block_hash: object
    token_ids: list
    block_size: int
    lora_id: object
    MEDIUM
@dataclasses.dataclass
class BlockRemoved(KVCacheEvent):
    block_hashes: list
    MEDIUM
class AllBlocksCleared(KVCacheEvent): pass
"""

AS_ITS_PUBLISHER_TAKES_THEM = """
from sglang.srt.disaggregation import kv_events
from stemma.compat_sglang import EvictParams, InsertParams, RadixCache, RadixKey
cache = RadixCache.create_simulated(enable_kv_cache_events=True)
events = []
for change in (
    lambda: cache.insert(InsertParams(RadixKey([1, 2]))),
    lambda: cache.evict(EvictParams(1)),
    lambda: cache.reset(),
):
    change()
    events += cache.take_events()
assert {type(event) for event in events} >= {kv_events.BlockStored, kv_events.BlockRemoved, kv_events.AllBlocksCleared}
assert all(isinstance(event, kv_events.KVCacheEvent) for event in events)
assert {getattr(event, "medium", None) for event in events} == MEDIA
"""


# Its publisher encodes these and no others; the first ones did not say where pages lie.
@pytest.mark.parametrize("medium, media", [("medium: object = None", '{"GPU", None}'), ("", "{None}")])
def test_events_are_sglangs_own_where_it_is_installed(tmp_path, medium, media):
    modules = {"srt/disaggregation/kv_events": KV_EVENTS.replace("MEDIUM", medium)}
    run_beside_sglang(tmp_path, ["-c", AS_ITS_PUBLISHER_TAKES_THEM.replace("MEDIA", media)], modules)


def test_sizes_are_told_in_words(capsys):
    served = Served()
    served.cache.insert(InsertParams(RadixKey([1, 2, 3]), served.slots.alloc(3)))
    locked = node(served.cache, [1])
    served.cache.inc_lock_ref(locked)
    served.cache.pretty_print()
    assert capsys.readouterr().out == "3 tokens: 2 evictable, 1 protected\n"
    assert "63 tokens" in served.cache.available_and_evictable_str()


def test_a_lock_is_ended_with_what_it_said():
    cache = RadixCache.create_simulated()
    insert(cache, [1, 2, 3])
    end = node(cache, [1, 2, 3])
    cache.dec_lock_ref(end, cache.inc_lock_ref(end).to_dec_params())
    assert cache.protected_size() == 0


@pytest.mark.parametrize("kind", [RadixCache, ChunkCache])
def test_there_are_no_windows_and_no_states(kind):
    cache = kind(CacheInitParams(tokens_max=8))
    cache.init_metrics_collector()
    assert cache.swa_reprefill_tail_tokens() == 0 and not cache.supports_swa() and not cache.supports_mamba()


SGLANG = {
    "base_prefix_cache": """
from abc import ABC, abstractmethod
class BasePrefixCache(ABC):
    def reset(self): ...
    def match_prefix(self, params): ...
    def cache_finished_req(self, req, is_insert=True, **kwargs): ...
    def cache_unfinished_req(self, req, **kwargs): ...
    def evict(self, params): ...
    def inc_lock_ref(self, node): ...
    def dec_lock_ref(self, node, params=None): ...
    for method in (reset, match_prefix, cache_finished_req, cache_unfinished_req, evict, inc_lock_ref, dec_lock_ref):
        abstractmethod(method)
    del method
    def init_metrics_collector(self): self.evicted = []
    def update_eviction_metrics(self, num_evicted, start_time): self.evicted.append(num_evicted)
""",
    "hicache_storage": """
from abc import ABC, abstractmethod
class HiCacheStorage(ABC):
    def get(self, key, target_location=None, target_sizes=None): ...
    def batch_get(self, keys, target_locations=None, target_sizes=None): ...
    def set(self, key, value=None, target_location=None, target_sizes=None): ...
    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None): ...
    def exists(self, key): ...
    for method in (get, batch_get, set, batch_set, exists):
        abstractmethod(method)
    del method
""",
    "radix_cache": """
class RadixKey:  # before salts were a field of their own
    __slots__ = ("token_ids", "extra_key", "is_bigram", "limit")
    def __init__(self, token_ids, extra_key=None, is_bigram=False, limit=None):
        self.token_ids, self.extra_key, self.is_bigram, self.limit = token_ids, extra_key, is_bigram, limit
    def raw_token_ids(self): return self.token_ids[: self.limit]
    def __len__(self): return len(self.raw_token_ids())
class FirstRadixKey:
    def __init__(self, token_ids, extra_key=None):
        self.token_ids, self.extra_key = token_ids, extra_key
    def __len__(self): return len(self.token_ids)
""",
    "registry": """
made = {}
register_radix_cache_backend = made.__setitem__
""",
}

AS_SGLANG_MAKES_THEM = """
import array, importlib, sys, torch, types
from sglang.srt.mem_cache import base_prefix_cache, hicache_storage, radix_cache, registry
module = importlib.import_module("stemma.compat_sglang")
context = types.SimpleNamespace(params=module.CacheInitParams(tokens_max=8))
cache = registry.made["stemma"](context)
for name in ("is_hybrid_swa", "is_hybrid_ssm", "enable_hierarchical_cache"):
    try:
        registry.made["stemma"](types.SimpleNamespace(params=context.params, **{name: True}))
        raise AssertionError(name)
    except module.UnsupportedError as error:
        assert name in str(error)
cache.init_metrics_collector()
cache.insert(module.InsertParams(module.RadixKey([1, 2, 3])))
def found(key): return cache.match_prefix(module.MatchPrefixParams(key)).device_indices.tolist()
assert found(radix_cache.RadixKey(array.array("q", [1, 2, 3]), limit=2)) == [1, 2]
assert found(radix_cache.RadixKey([1, 2, 3], "tenant")) == []
assert found(radix_cache.FirstRadixKey([1, 2, 9])) == [1, 2]
cache.insert(module.InsertParams(radix_cache.RadixKey([1, 2], "tenant"), torch.tensor([4, 5])))
assert found(module.RadixKey([1, 2], "tenant")) == [4, 5] and found(module.RadixKey([1, 2], cache_salt="tenant")) == []
cache.evict(module.EvictParams(2))
assert isinstance(cache, base_prefix_cache.BasePrefixCache) and cache.evicted == [2]
assert isinstance(module.ChunkCache(context.params), base_prefix_cache.BasePrefixCache)
extra = {"directory": sys.argv[1], "value_bytes": 256, "bytes_max": 4 << 20}
backend_class = getattr(module, "StemmaHiCacheStorage")
assert issubclass(backend_class, hicache_storage.HiCacheStorage)
storage = backend_class(types.SimpleNamespace(extra_config=extra, model_name="m"), {"some": "keywords"})
assert not storage.exists("h")
"""


def run_beside_sglang(tmp_path, words, modules):
    """What it prints."""
    for name, text in modules.items():
        module = tmp_path / "sglang" / f"{name}.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    words = [sys.executable, *words]
    return subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_they_are_sglangs_own_kinds_where_it_is_installed(tmp_path):
    modules = {f"srt/mem_cache/{name}": text for name, text in SGLANG.items()}
    run_beside_sglang(tmp_path, ["-c", AS_SGLANG_MAKES_THEM, str(tmp_path / "disk")], modules)


LAUNCH_SERVER = """
import multiprocessing, sys
from sglang.srt.mem_cache.registry import say_caches
say_caches(sys.argv[1:])
child = multiprocessing.get_context("spawn").Process(target=say_caches, args=(["in a child"],))
child.start()
child.join()
"""


# Its schedulers are started by spawn: what the first process imported they do not have.
def test_the_documentations_script_registers_it_in_schedulers_too(tmp_path):
    text = (pathlib.Path(__file__).parents[2] / "docs/PYTHON.md").read_text()
    script = tmp_path / "serve.py"
    script.write_text(text.split("Such a script does both:")[1].split("```python\n")[1].split("```")[0])
    say_caches = "def say_caches(words): print(*words, *made, flush=True)\n"
    modules = {"srt/mem_cache/registry": SGLANG["registry"] + say_caches, "launch_server": LAUNCH_SERVER}
    said = run_beside_sglang(tmp_path, [str(script), "--radix-cache-backend"], modules)
    assert said == "--radix-cache-backend stemma\nin a child stemma\n"


# Events.


@pytest.mark.parametrize("page_size", [1, 2])
def test_what_is_stored_is_told_page_by_page(page_size):
    cache = RadixCache.create_simulated(page_size=page_size, enable_kv_cache_events=True)
    insert(cache, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    events = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    texts = {1: [[1], [2], [3], [4], [5]], 2: [[1, 2], [3, 4]]}
    assert [event.token_ids for event in events] == texts[page_size]
    assert all(event.block_size == page_size for event in events)
    assert cache.take_events() == []


def test_pages_name_the_page_before_them():
    cache = RadixCache.create_simulated(page_size=4, enable_kv_cache_events=True)
    insert(cache, [1, 2, 3, 4] * 2, range(8))
    first, second = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    assert first.parent_block_hash is None and second.parent_block_hash == first.block_hashes[0]
    assert first.block_hashes != second.block_hashes


def test_a_split_makes_no_page_anew():
    cache = RadixCache.create_simulated(page_size=2, enable_kv_cache_events=True)
    insert(cache, [1, 2, 3, 4], range(4))
    insert(cache, [1, 2, 5, 6], range(4))
    events = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    assert [event.token_ids for event in events] == [[1, 2], [3, 4], [5, 6]]
    assert events[1].parent_block_hash == events[2].parent_block_hash == events[0].block_hashes[0]


def test_what_is_evicted_is_told_by_the_hash_it_was_stored_under():
    cache = RadixCache.create_simulated(mock_allocator=Freed(), enable_kv_cache_events=True)
    insert(cache, [1, 2, 3], [10, 20, 30])
    stored = {h for event in cache.take_events() if isinstance(event, BlockStored) for h in event.block_hashes}
    assert cache.evict(EvictParams(3)).num_tokens_evicted == 3
    removed = {h for event in cache.take_events() if isinstance(event, BlockRemoved) for h in event.block_hashes}
    assert removed == stored and len(stored) == 3


def test_there_are_no_events_unless_asked_for():
    cache = RadixCache.create_simulated()
    insert(cache, [1, 2, 3])
    assert cache.take_events() == []


# Requests.


class Served:
    """A cache with its pools, and requests as SGLang's scheduler leads them."""

    def __init__(self, kind=RadixCache, page_size=1, disable_finished_insert=False, **more):
        paged = page_size > 1
        self.slots = PagedTokenToKVPoolAllocator(64, page_size) if paged else TokenToKVPoolAllocator(64)
        self.rows = ReqToTokenPool(8, 32)
        params = CacheInitParams(False, self.rows, self.slots, page_size)
        params.disable_finished_insert = disable_finished_insert
        self.cache = kind(params, **more)

    def begin(self, prompt, cache_salt=None):
        result = match(self.cache, prompt[:-1], cache_salt=cache_salt)
        shared = result.device_indices
        self.cache.inc_lock_ref(result.last_device_node)
        request = types.SimpleNamespace(
            req_pool_idx=self.rows.alloc(1)[0],
            origin_input_ids=list(prompt),
            cache_salt=cache_salt,
            output_ids=[],
            fill_ids=list(prompt),
            kv_committed_len=len(prompt),
            prefix_indices=shared,
            cache_protected_len=len(shared),
            last_node=result.last_device_node,
        )
        missing = -(-(len(prompt) - len(shared)) // self.cache.page_size) * self.cache.page_size
        slots = torch.cat([shared, self.slots.alloc(missing)])[: len(prompt)]
        self.rows.write((request.req_pool_idx, slice(0, len(prompt))), slots.to(torch.int32))
        return request

    def row(self, request):
        return self.rows.req_to_token[request.req_pool_idx, : len(request.fill_ids)].tolist()

    def check(self):
        self.cache.sanity_check()
        assert self.slots.available_size() + self.cache.total_size() == 64


@pytest.mark.parametrize("shared", [[], [1, 2, 3]])
def test_a_life_of_a_request_leaves_nothing_locked(shared):
    served = Served()
    if shared:
        served.cache.insert(InsertParams(RadixKey(shared), served.slots.alloc(len(shared))))
    request = served.begin([1, 2, 3, 40, 50])
    served.cache.cache_unfinished_req(request)
    assert request.cache_protected_len == len(request.prefix_indices) == 5
    served.cache.cache_finished_req(request)
    assert served.cache.root_node.lock_ref == 1
    assert (served.cache.protected_size(), served.cache.evictable_size()) == (0, 5)
    served.check()


@pytest.mark.parametrize("shared", [[], [1, 2, 3]])
def test_a_request_that_fails_leaves_only_what_was_there(shared):
    served = Served()
    if shared:
        served.cache.insert(InsertParams(RadixKey(shared), served.slots.alloc(len(shared))))
    request = served.begin([1, 2, 3, 40, 50])
    assert served.cache.protected_size() == len(shared)
    served.cache.cache_finished_req(request, is_insert=False)
    assert (served.cache.protected_size(), served.cache.evictable_size()) == (0, len(shared))
    served.check()


@pytest.mark.parametrize("kind", ["device", "write_through", "write_through_selective"])
def test_requests_beyond_the_namespaces_that_there_can_be_keep_their_slots(kind, monkeypatch, caplog):
    monkeypatch.setattr(sglang, "NAMESPACES_MAX", 4)  # one is of who has no salt
    monkeypatch.setattr(sglang, "NAMESPACES_OPEN_MAX", 1)
    served = Served() if kind == "device" else Tiered(kind)
    requests = [served.begin([1, 2, 3], str(salt)) for salt in range(3)]
    for request in requests:
        served.cache.cache_unfinished_req(request)
    requests += [served.begin([1, 2, 3], str(salt)) for salt in (2, 3, 4)]
    for request in requests[3:]:
        served.cache.cache_unfinished_req(request)
    assert [request.cache_protected_len for request in requests] == [3, 3, 3, 3, 0, 0]
    assert [len(request.prefix_indices) for request in requests] == [3] * 6
    assert ["namespaces" in record.message for record in caplog.records] == [True]
    for request in reversed(requests):
        served.cache.cache_finished_req(request)
    assert (served.cache.protected_size(), served.cache.evictable_size()) == (0, 9)
    served.check()


# SGLang has no tokens_max: its tree grows as its pool does.
def test_what_a_full_tree_does_not_take_stays_the_requests():
    served = Served()
    served.cache = RadixCache(CacheInitParams(False, served.rows, served.slots, tokens_max=5))
    requests = [served.begin([1, 2, 3, 4]), served.begin([1, 2, 3, 4, 50, 60])]
    for request in requests:
        served.cache.cache_unfinished_req(request)
    assert [request.cache_protected_len for request in requests] == [4, 4]
    assert served.row(requests[1])[:4] == served.row(requests[0])
    for request in requests:
        served.cache.cache_finished_req(request)
    assert (served.cache.protected_size(), served.cache.evictable_size()) == (0, 4)
    served.check()


# As SGLang's deterministic inference wants it: KV of decoding has other bits than that of a prompt.
def test_what_was_decoded_is_not_cached_where_finished_requests_are_left_out():
    served = Served(disable_finished_insert=True)
    request = served.begin([1, 2, 3])
    served.cache.cache_unfinished_req(request)
    request.output_ids, request.fill_ids, request.kv_committed_len = [4, 5], [1, 2, 3, 4, 5], 5
    served.rows.write((request.req_pool_idx, slice(3, 5)), served.slots.alloc(2).to(torch.int32))
    served.cache.cache_finished_req(request)
    assert len(found(served.cache, [1, 2, 3, 4, 5])) == 3
    assert served.cache.protected_size() == 0
    served.check()


def test_rounds_on_one_prefix_leave_nothing_locked():
    served = Served()
    for i in range(5):
        request = served.begin([1, 2, 3, 40 + i])
        served.cache.cache_unfinished_req(request)
        served.cache.cache_finished_req(request)
        assert served.cache.protected_size() == 0
    served.check()


def test_of_equal_requests_both_rows_end_on_the_trees_slots():
    served = Served()
    one, other = served.begin([1, 2, 3]), served.begin([1, 2, 3])
    assert set(served.row(one)).isdisjoint(served.row(other))
    served.cache.cache_unfinished_req(one)
    served.cache.cache_unfinished_req(other)
    assert served.row(one) == served.row(other) == one.prefix_indices.tolist()
    assert served.slots.available_size() == 61
    served.cache.cache_finished_req(one)
    served.cache.cache_finished_req(other)
    served.check()


def test_a_part_of_a_page_stays_the_requests_until_it_ends():
    served = Served(page_size=4)
    request = served.begin(list(range(10)))
    served.cache.cache_unfinished_req(request)
    assert request.cache_protected_len == 8 and len(request.prefix_indices) == 10
    assert served.cache.protected_size() == 8
    served.cache.cache_finished_req(request)
    served.check()


def test_outputs_are_cached_too():
    served = Served()
    request = served.begin([1, 2, 3])
    request.output_ids = [4, 5]
    new = served.slots.alloc(1)
    served.rows.write((request.req_pool_idx, slice(3, 4)), new.to(torch.int32))
    request.kv_committed_len = 4
    served.cache.cache_finished_req(request)
    assert len(found(served.cache, [1, 2, 3, 4, 5])) == 4
    served.check()


def decode(served, request, tokens):
    """Computes outputs of a request, behind what its row has."""
    request.output_ids += tokens
    first, last = request.kv_committed_len, request.kv_committed_len + len(tokens)
    served.rows.write((request.req_pool_idx, slice(first, last)), served.slots.alloc(len(tokens)).int())
    request.kv_committed_len = last


def test_what_lies_behind_the_length_that_is_handed_over_stays_the_callers():
    served = Served()
    request = served.begin([1, 2, 3])
    decode(served, request, [90, 91, 92])
    row = served.rows.req_to_token[request.req_pool_idx, :6].long()
    served.cache.cache_finished_req(request, kv_len_to_handle=3)
    assert found(served.cache, [1, 2, 3, 90, 91, 92]) == row[:3].tolist()
    served.slots.free(row[3:])
    served.check()


def test_of_the_length_that_is_handed_over_the_part_of_a_page_is_freed():
    served = Served(page_size=4)
    request = served.begin(list(range(10)))
    served.cache.cache_unfinished_req(request)
    served.cache.cache_finished_req(request, kv_len_to_handle=10)
    assert len(found(served.cache, range(10))) == 8
    served.check()


def test_a_length_within_what_the_tree_has_frees_none_of_it():
    served = Served(page_size=4)
    request = served.begin(list(range(8)))
    served.cache.cache_unfinished_req(request)
    assert request.cache_protected_len == 8
    served.cache.cache_finished_req(request, kv_len_to_handle=6)
    assert len(found(served.cache, range(8))) == 8
    served.check()


@pytest.mark.parametrize("said", [None, "nothing"])
def test_what_a_request_locks_is_the_trees_where_it_does_not_say_how_much_that_is(said):
    served = Served()
    served.cache.cache_finished_req(served.begin([1, 2, 3, 4]))
    for finish in (served.cache.cache_unfinished_req, lambda request: None):
        request = served.begin([1, 2, 3, 9])
        if said is None:
            request.cache_protected_len = None
        else:
            del request.cache_protected_len
        finish(request)
        served.cache.cache_finished_req(request)
        served.check()
    assert served.cache.total_size() == 5


def test_fields_of_a_request_may_be_in_its_kv():
    served = Served()
    for tokens in ([1, 2, 3, 4], [1, 2, 3, 9]):
        request = served.begin(tokens)
        moved = ("req_pool_idx", "kv_committed_len", "cache_protected_len")
        request.kv = types.SimpleNamespace(**{name: request.__dict__.pop(name) for name in moved})
        served.cache.cache_unfinished_req(request)
        assert request.kv.cache_protected_len == 4
        served.cache.cache_finished_req(request, kv_len_to_handle=4)
        served.rows.free(request)
        assert request.kv.req_pool_idx is None and served.rows.alloc([request]) == [request.kv.req_pool_idx]
        served.rows.free(request)
    served.check()
    assert served.cache.total_size() == 5 and served.rows.available_size() == 8


def test_a_request_that_asks_for_it_is_not_cached():
    served = Served()
    request = served.begin([1, 2, 3])
    request.skip_radix_cache_insert = True
    served.cache.cache_unfinished_req(request)
    assert served.cache.total_size() == 0 and request.prefix_indices.tolist() == served.row(request)


def test_a_chunk_cache_shares_nothing():
    freed = Freed()
    rows = types.SimpleNamespace(req_to_token=torch.arange(20, dtype=torch.int32).reshape(4, 5))
    cache = ChunkCache(CacheInitParams(req_to_token_pool=rows, token_to_kv_pool_allocator=freed))
    result = match(cache, [1, 2])
    assert result.device_indices.tolist() == [] and result.device_indices.dtype == torch.int64
    assert result.last_device_node is result.last_host_node is result.best_match_node is None
    assert insert(cache, [1, 2], [1, 2]).prefix_len == 0 and cache.evict(EvictParams(5)).num_tokens_evicted == 0
    assert cache.inc_lock_ref(None).delta == cache.dec_lock_ref(None).delta == cache.protected_size() == 0
    cache.cache_finished_req(types.SimpleNamespace(req_pool_idx=1, kv_committed_len=3))
    assert freed.slots == [5, 6, 7]
    request = types.SimpleNamespace(req_pool_idx=2, fill_ids=[0, 0, 0, 0])
    cache.cache_unfinished_req(request)
    rows.req_to_token.zero_()
    assert request.prefix_indices.tolist() == [10, 11, 12, 13]


def test_room_is_made_where_it_is_short():
    served = Served()
    served.cache.insert(InsertParams(RadixKey(list(range(60))), served.slots.alloc(60)))
    sglang.evict_from_tree_cache(served.cache, 4)
    assert served.cache.total_size() == 60
    sglang.evict_from_tree_cache(served.cache, 6)
    assert served.cache.total_size() == 54
    sglang.evict_from_tree_cache(None, 6)
    sglang.evict_from_tree_cache(ChunkCache(CacheInitParams()), 6)


def test_salts_that_lose_their_names_lose_no_slots(monkeypatch):
    monkeypatch.setattr(sglang, "NAMESPACES_MAX", 1024)
    slots = TokenToKVPoolAllocator(2000)
    cache = RadixCache(CacheInitParams(token_to_kv_pool_allocator=slots))
    for salt in range(1500):
        cache.insert(InsertParams(RadixKey([1], cache_salt=str(salt)), slots.alloc(1)))
        assert slots.available_size() + cache.total_size() == 2000
    assert sorted(cache.all_values_flatten().tolist()) == list(range(1, 1501))
    cache.evict(EvictParams(2000))
    assert slots.available_size() == 2000


# Host memory below.


class HostCopies:
    """Bytes of the device and of the host: one number a slot."""

    def __init__(self, size):
        self.size = size
        self.host, self.device = torch.zeros(size, dtype=torch.int64), torch.zeros(65, dtype=torch.int64)

    def backup(self, device_slots, host_slots):
        self.host[host_slots] = self.device[device_slots]

    def load(self, host_slots, device_slots):
        self.device[device_slots] = self.host[host_slots]


class Tiered(Served):
    def __init__(self, write_policy, host_tokens=64, page_size=1):
        self.copies = HostCopies(host_tokens)
        super().__init__(HiRadixCache, page_size, host_pool=self.copies, write_policy=write_policy)
        self.cache.load_back_threshold = 1

    def store(self, tokens):
        """Computes a text: the byte of a token is the token."""
        slots = self.slots.alloc(len(tokens))
        self.copies.device[slots] = longs(*tokens)
        self.cache.insert(InsertParams(RadixKey(list(tokens)), slots))

    def drop_device(self):
        self.cache.evict(EvictParams(1000))
        self.copies.device.zero_()

    def load_back(self, tokens, **more):
        result = match(self.cache, tokens)
        return self.cache.init_load_back(InitLoadBackParams(result.best_match_node, result.host_hit_length, **more))

    def bytes(self, tokens):
        return self.copies.device[match(self.cache, tokens).device_indices].tolist()


def test_salts_that_lose_their_names_lose_no_host_memory(monkeypatch):
    monkeypatch.setattr(sglang, "NAMESPACES_MAX", 1024)
    tiered = Tiered("write_through", host_tokens=2000)
    for salt in range(1500):
        sglang.evict_from_tree_cache(tiered.cache, 1)
        tiered.cache.insert(InsertParams(RadixKey([1], cache_salt=str(salt)), tiered.slots.alloc(1)))
    tiered.check()
    assert tiered.cache._host_slots.available_size() + tiered.cache.host_total_size() == 2000


def refuse(*_):
    raise RuntimeError("no copy")


def test_a_copy_down_that_raises_takes_no_host_memory(monkeypatch):
    tiered = Tiered("write_back")
    tiered.store(range(100, 112))
    free = tiered.cache._host_slots.available_size()
    with monkeypatch.context() as patch:
        patch.setattr(tiered.copies, "backup", refuse)
        with pytest.raises(RuntimeError, match="no copy"):
            tiered.cache.evict(EvictParams(1000))
    assert tiered.cache._host_slots.available_size() == free


# Had its request not learnt that its slots are the tree's, it would free them, for others to write over.
def test_where_a_copy_down_raises_what_was_inserted_is_the_trees_all_the_same(monkeypatch, caplog):
    tiered = Tiered("write_through")
    monkeypatch.setattr(tiered.copies, "backup", refuse)
    request = tiered.begin([1, 2, 3])
    tiered.cache.cache_unfinished_req(request)
    assert "host copy" in caplog.text
    tiered.cache.cache_finished_req(request, is_insert=False)
    tiered.check()
    assert tiered.cache.total_size() == 3


def test_a_copy_up_that_raises_takes_no_slots(monkeypatch):
    tiered, text = Tiered("write_through"), list(range(100, 112))
    tiered.store(text)
    tiered.drop_device()
    free = tiered.slots.available_size()
    with monkeypatch.context() as patch:
        patch.setattr(tiered.copies, "load", refuse)
        with pytest.raises(RuntimeError, match="no copy"):
            tiered.load_back(text)
    assert tiered.slots.available_size() == free
    assert len(tiered.load_back(text)[0]) == 12 and tiered.bytes(text) == text


# Two requests match while only the host has the text; the first of them brings part of it.
def test_what_somebody_else_brought_meanwhile_is_part_of_what_comes_back():
    tiered, text = Tiered("write_through"), list(range(100, 112))
    tiered.store(text)
    tiered.drop_device()
    seen = match(tiered.cache, text)
    assert len(tiered.load_back(text[:5])[0]) == 5
    slots, _ = tiered.cache.init_load_back(InitLoadBackParams(seen.best_match_node, seen.host_hit_length))
    assert tiered.copies.device[slots].tolist() == text


def test_what_others_brought_is_there_where_the_rest_is_too_little_to_load():
    tiered, text = Tiered("write_through"), list(range(100, 112))
    tiered.store(text)
    tiered.drop_device()
    seen = match(tiered.cache, text)
    tiered.load_back(text[:9])
    tiered.cache.load_back_threshold = 4
    slots, node = tiered.cache.init_load_back(InitLoadBackParams(seen.best_match_node, seen.host_hit_length))
    assert tiered.copies.device[slots].tolist() == text[:9]
    tiered.cache.inc_lock_ref(node)
    assert tiered.cache.protected_size() == 9
    tiered.cache.dec_lock_ref(node)


def test_no_slots_are_on_the_cache_s_device_too():
    for disable in (False, True):
        allocator = type("Allocator", (), {"device": "meta"})()
        cache = RadixCache.create_simulated(disable=disable, mock_allocator=allocator)
        assert match(cache, [1, 2, 3]).device_indices.device.type == "meta"


def test_nothing_comes_back_behind_what_has_left_the_device():
    tiered, text = Tiered("write_through"), list(range(100, 112))
    tiered.store(text)
    tiered.drop_device()
    tiered.load_back(text[:5])
    seen = match(tiered.cache, text)
    assert len(seen.device_indices) == 5
    tiered.drop_device()
    slots, _ = tiered.cache.init_load_back(InitLoadBackParams(seen.best_match_node, seen.host_hit_length))
    assert len(slots) == 0


@pytest.mark.parametrize("write_policy", ["write_through", "write_through_selective", "write_back"])
@pytest.mark.parametrize("page_size", [1, 4])
def test_what_left_the_device_comes_back_byte_for_byte(write_policy, page_size):
    tiered, text = Tiered(write_policy, page_size=page_size), list(range(100, 112))
    tiered.store(text)
    match(tiered.cache, text)
    tiered.drop_device()
    result = match(tiered.cache, text)
    assert len(result.device_indices) == 0 and result.host_hit_length == 12
    assert result.best_match_node.backuped and result.best_match_node.evicted
    slots, node = tiered.load_back(text)
    assert len(slots) == 12 and tiered.bytes(text) == text
    tiered.cache.inc_lock_ref(node)
    assert tiered.cache.protected_size() == 12
    tiered.cache.dec_lock_ref(node)
    tiered.cache.check_hicache_events()
    tiered.cache.writing_check(write_back=True)
    tiered.check()


def test_selective_copies_what_was_used_again():
    tiered = Tiered("write_through_selective")
    tiered.store([1, 2, 3])
    tiered.store([7, 8, 9])
    match(tiered.cache, [1, 2, 3])
    assert tiered.cache.host_total_size() == 3
    tiered.drop_device()
    assert match(tiered.cache, [1, 2, 3]).host_hit_length == 3
    assert match(tiered.cache, [7, 8, 9]).host_hit_length == 0


def test_write_back_copies_only_what_is_evicted():
    tiered = Tiered("write_back")
    tiered.store([1, 2, 3])
    tiered.store([7, 8, 9])
    assert tiered.cache.host_total_size() == 0
    tiered.cache.evict(EvictParams(3))
    assert tiered.cache.host_total_size() == 3
    assert match(tiered.cache, [1, 2, 3]).host_hit_length == 3


def test_the_device_and_the_host_have_each_a_part():
    tiered, text = Tiered("write_through"), list(range(100, 112))
    tiered.store(text)
    tiered.cache.evict(EvictParams(8))
    result = match(tiered.cache, text)
    assert len(result.device_indices) == 4 and result.host_hit_length == 8 and result.full_kv_hit_length == 12
    slots, _ = tiered.load_back(text)
    assert len(slots) == 8 and tiered.bytes(text) == text
    tiered.check()


def test_host_memory_that_is_full_forgets_its_coldest():
    tiered = Tiered("write_through", host_tokens=6)
    for first in (100, 200, 300):
        tiered.store(range(first, first + 3))
    tiered.drop_device()
    assert [match(tiered.cache, range(f, f + 3)).host_hit_length for f in (100, 200, 300)] == [0, 3, 3]
    assert tiered.cache.host_total_size() == 6


def test_too_little_and_too_much_are_not_loaded():
    tiered, text = Tiered("write_through"), list(range(100, 112))
    tiered.store(text)
    tiered.drop_device()
    assert len(tiered.load_back(text, mem_quota=11)[0]) == 0
    tiered.cache.load_back_threshold = 13
    assert len(tiered.load_back(text)[0]) == 0
    tiered.cache.load_back_threshold = 12
    assert len(tiered.load_back(text, mem_quota=12)[0]) == 12


def test_loading_makes_room_on_the_device():
    tiered, text = Tiered("write_through", host_tokens=128), list(range(100, 112))
    tiered.store(text)
    tiered.drop_device()
    tiered.store(range(1000, 1060))
    assert len(tiered.load_back(text)[0]) == 12 and tiered.bytes(text) == text
    assert len(found(tiered.cache, range(1000, 1060))) == 52
    tiered.check()


def test_nothing_is_loaded_where_the_device_has_no_room():
    tiered, text = Tiered("write_through"), list(range(100, 112))
    tiered.store(text)
    tiered.drop_device()
    tiered.slots.alloc(60)
    slots, node = tiered.load_back(text)
    assert len(slots) == 0 and node is tiered.cache.root_node


def test_host_copies_are_of_their_namespace():
    tiered = Tiered("write_through")
    slots = tiered.slots.alloc(3)
    tiered.cache.insert(InsertParams(RadixKey([1, 2, 3], "a"), slots))
    tiered.drop_device()
    assert match(tiered.cache, [1, 2, 3], "a").host_hit_length == 3
    assert match(tiered.cache, [1, 2, 3], "b").host_hit_length == match(tiered.cache, [1, 2, 3]).host_hit_length == 0


# Also while somebody keeps the exception, and with it what the call had.
def test_a_copy_that_fails_amid_an_eviction_leaves_nothing_locked(monkeypatch):
    tiered = Tiered("write_back")
    tiered.store([1, 2, 3])
    tiered.store([4, 5])
    monkeypatch.setattr(tiered.copies, "backup", refuse)
    with pytest.raises(RuntimeError, match="no copy") as raised:
        tiered.cache.evict(EvictParams(5))
    assert (tiered.cache.protected_size(), tiered.cache.evictable_size()) == (0, 5), raised
    monkeypatch.undo()
    assert tiered.cache.evict(EvictParams(5)).num_tokens_evicted == 5


def test_write_back_knows_the_namespace_of_what_goes():
    tiered = Tiered("write_back")
    for name in ("a", None, "b"):
        tiered.cache.insert(InsertParams(RadixKey([1, 2, 3], name), tiered.slots.alloc(3)))
    tiered.drop_device()
    assert [match(tiered.cache, [1, 2, 3], name).host_hit_length for name in ("a", None, "b", "c")] == [3, 3, 3, 0]


def test_reset_forgets_both_tiers():
    tiered = Tiered("write_through")
    tiered.store([1, 2, 3])
    tiered.cache.reset()
    assert tiered.cache.total_size() == tiered.cache.host_total_size() == 0
    assert match(tiered.cache, [1, 2, 3]).host_hit_length == 0


def test_an_unknown_write_policy_is_refused():
    with pytest.raises(stemma.InvalidArgumentError, match="write_policy"):
        HiRadixCache(CacheInitParams(tokens_max=8), HostCopies(8), "write_around")


# Storage below host memory.


class HostPages:
    """A host pool as a storage sees it: pages of four slots, 2 x 3 numbers a slot."""

    page_size = 4

    def __init__(self, dtype=torch.float16, **form):
        self.slots = torch.arange(32 * 6).reshape(32, 6).to(dtype)
        self.__dict__.update(form)

    def get_data_page(self, index, flat=True):
        return self.slots[index : index + 4].flatten()

    def get_dummy_flat_data_page(self):
        return torch.zeros(24, dtype=self.slots.dtype)

    def set_from_flat_data_page(self, index, page):
        self.slots[index : index + 4] = page.view(4, 6)


@pytest.fixture
def storage():
    made = StemmaHiCacheStorage(store=stemma.PageStore.memory(value_bytes=256, bytes_max=1 << 20), suffix="_m_0_1")
    made.register_mem_pool_host(HostPages())
    return made


def test_pages_go_to_storage_and_come_back(storage):
    pool, indices = storage._pool, torch.arange(12)
    kept = pool.slots.clone()
    assert storage.batch_set_v1(["h0", "h1", "h2"], indices) == [True] * 3
    pool.slots.zero_()
    assert storage.batch_get_v1(["h0", "h1", "h2"], indices) == [True] * 3
    assert torch.equal(pool.slots[:12], kept[:12]) and not pool.slots[12:].any()


def test_what_is_missing_leaves_its_page_as_it_is(storage):
    storage.batch_set_v1(["h0", "h2"], torch.cat([torch.arange(4), torch.arange(8, 12)]))
    storage._pool.slots.fill_(7)
    assert storage.batch_get_v1(["h0", "h1", "h2"], torch.arange(12)) == [True, False, True]
    assert (storage._pool.slots[4:8] == 7).all()
    assert storage.batch_exists(["h0", "h1", "h2"]) == 1 and storage.exists("h2") and not storage.exists("h1")


def test_a_page_of_another_length_is_not_taken(storage):
    assert storage.set("h0", torch.zeros(8))
    assert storage.get("h0", torch.zeros(9)) is None
    assert storage.batch_get(["h0", "h1"], [torch.ones(8), torch.ones(8)])[0].tolist() == [0] * 8


# SGLang knows a model by its name, which new weights may keep.
def test_a_namespace_tells_weights_of_one_name_apart(storage):
    def of(**extra):
        config = types.SimpleNamespace(model_name="m", tp_rank=0, tp_size=1, is_mla_model=False, extra_config=extra)
        return StemmaHiCacheStorage(config, store=storage._store)

    assert of(namespace="first").set("key", torch.ones(4))
    assert of(namespace="first").exists("key")
    assert not of(namespace="second").exists("key") and not of().exists("key")


def test_suffixes_tell_ranks_apart(storage):
    other = StemmaHiCacheStorage(store=storage._store, suffix="_m_1_2")
    assert storage.batch_set(["h0"], [torch.zeros(8)]) and not other.exists("h0")
    storage.clear()
    assert not storage.exists("h0") and storage._store.stats()["values"] == 0


# Each call removes a part of what a server has.
def test_a_storage_with_more_than_one_call_removes_is_cleared_all_the_same():
    answers = [stemma.errors.DeadlineError("values may be left")] * 3

    def clear():
        if answers:
            raise answers.pop()

    StemmaHiCacheStorage(store=types.SimpleNamespace(clear=clear)).clear()
    assert answers == []


# With --enable-metrics SGLang's scheduler hands them to its collector in every round, which takes its own class or None.
def test_a_storage_has_no_figures_that_sglang_would_not_take(storage):
    assert storage.get_stats() is None


def test_room_for_no_page_is_refused(tmp_path):
    extra = {"directory": str(tmp_path), "value_bytes": 47, "bytes_max": 4 << 20}
    config = types.SimpleNamespace(extra_config=extra, model_name="m")
    with pytest.raises(stemma.InvalidArgumentError, match="^value_bytes: .* 48 "):
        StemmaHiCacheStorage(config).register_mem_pool_host(HostPages())


# As that of a recurrent state, or of an indexer: a prefix is computed with both.
def test_pools_beside_that_of_keys_and_values_are_refused(storage):
    storage.register_mem_host_pool_v2(storage._pool, "kv")
    with pytest.raises(stemma.UnsupportedError, match="^mamba: "):
        storage.register_mem_host_pool_v2(HostPages(), "mamba")


# Codes of either kind of 8-bit floats lie in host memory as bytes.
def test_pages_of_another_kind_of_codes_are_not_found(storage):
    def opened(dtype):
        made = StemmaHiCacheStorage(store=storage._store, suffix=storage._suffix)
        device_pool = types.SimpleNamespace(dtype=dtype, store_dtype=torch.uint8)
        made.register_mem_pool_host(HostPages(dtype=torch.uint8, device_pool=device_pool))
        return made

    assert opened("torch.float8_e4m3fn").batch_set_v1(["h0"], torch.arange(4)) == [True]
    assert opened("torch.float8_e4m3fn").exists("h0") and not opened("torch.float8_e5m2").exists("h0")


class HostPoolGroup:
    """What newer SGLangs register: pages of its first pool, and of what that is only where and how they lie."""

    layout, page_size = "layer_first", 4

    def __init__(self, pool):
        self.anchor_entry = types.SimpleNamespace(name="kv", host_pool=pool)

    def get_data_page(self, index, flat=True):
        return self.anchor_entry.host_pool.get_data_page(index, flat)

    def get_dummy_flat_data_page(self):
        return self.anchor_entry.host_pool.get_dummy_flat_data_page()

    def set_from_flat_data_page(self, index, page):
        self.anchor_entry.host_pool.set_from_flat_data_page(index, page)


def test_pages_of_another_form_are_not_found_in_a_group_of_pools(storage):
    def opened(is_group, **form):
        made = StemmaHiCacheStorage(store=storage._store, suffix=storage._suffix)
        pool = HostPages(dtype=torch.uint8, layout="layer_first", **form)
        made.register_mem_pool_host(HostPoolGroup(pool) if is_group else pool)
        return made

    e4m3, e5m2 = (types.SimpleNamespace(dtype=f"torch.float8_{kind}") for kind in ("e4m3fn", "e5m2"))
    assert opened(True, device_pool=e4m3, head_num=2).batch_set_v1(["h0"], torch.arange(4)) == [True]
    assert [opened(is_group, device_pool=e4m3, head_num=2).exists("h0") for is_group in (True, False)] == [True, True]
    assert not opened(True, device_pool=e5m2, head_num=2).exists("h0")
    assert not opened(True, device_pool=e4m3, head_num=1).exists("h0")


def test_pages_of_another_form_are_not_found(storage):
    def opened(**form):
        made = StemmaHiCacheStorage(store=storage._store, suffix=storage._suffix)
        made.register_mem_pool_host(HostPages(**form))
        return made

    form = {"layout": "layer_first", "layer_num": 3, "head_num": 2, "head_dim": 1}
    assert opened(**form).batch_set_v1(["h0"], torch.arange(4)) == [True]
    assert opened(**form).batch_exists(["h0"]) == 1
    others = ({"layout": "page_first"}, {"dtype": torch.bfloat16}, {"head_num": 1, "head_dim": 2}, {"page_size": 2})
    for other in (opened(**{**form, **changed}) for changed in others):
        assert not other.exists("h0") and other.batch_get_v1(["h0"], torch.arange(4)) == [False]


# Ranks of one MLA stage all have the same; stages, and ranks of context, never.
def test_ranks_share_in_storage_what_is_the_same_of_them():
    def name(**fields):
        fields = {"model_name": "m", "tp_rank": 1, "tp_size": 2, **fields}
        config = types.SimpleNamespace(extra_config=None, **fields)
        return StemmaHiCacheStorage(config, store=stemma.PageStore.memory(value_bytes=8, bytes_max=1 << 20))._name("h")

    assert name() == name(pp_rank=0, pp_size=1) == "h_m_1_2"
    assert name(is_mla_model=True) == name(is_mla_model=True, tp_rank=0) == "h_m"
    assert name(pp_rank=0, pp_size=2) != name(pp_rank=1, pp_size=2)
    assert name(attn_cp_rank=0, attn_cp_size=2) != name(attn_cp_rank=1, attn_cp_size=2)


def test_storage_is_opened_from_its_configuration(tmp_path):
    extra = {"directory": str(tmp_path), "value_bytes": 256, "bytes_max": 4 << 20}
    config = types.SimpleNamespace(extra_config=extra, model_name="m", tp_rank=0, tp_size=2)
    storage = StemmaHiCacheStorage(config)
    assert storage.set("h0", torch.ones(8)) and storage._name("h0") == "h0_m_0_2"
    storage.close()
