"""SGLang's prefix caches over Stemma's tree: RadixCache, HiRadixCache and ChunkCache, under SGLang's names.

Importing this module where a `sglang` with pluggable caches is installed registers RadixCache as "stemma"
(`--radix-cache-backend stemma`), in the processes that import it: docs/PYTHON.md has a script for all. Sizes are tokens;
slots are int64 [tokens] on the device.

A node is the end of a match. It holds nothing until it is locked, stays good when others split the tree, and is stale
once it was evicted. Keys of bigrams are not cached here: stemma.UnsupportedError.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import inspect
import itertools
import json
import logging
import time
from typing import Any, NamedTuple, Optional

import numpy
import torch

from . import _stemma
from ._first_warning import FirstWarning
from .compat_sglang_pools import (  # noqa: F401
    HostSlotPool,
    PagedTokenToKVPoolAllocator,
    ReqToTokenPool,
    TokenToKVPoolAllocator,
    kv_to_page_indices,
    kv_to_page_num,
    page_align_floor,
    request_part,
)
from ._stores import check_page_fits, empty_store, open_store
from .errors import InvalidArgumentError, TooLargeError, UnsupportedError

try:
    from sglang.srt.mem_cache.base_prefix_cache import BasePrefixCache
except ImportError:

    class BasePrefixCache:
        """Stands for SGLang's, where that has none or is not installed; so does the next."""


try:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage
except ImportError:

    class HiCacheStorage:
        pass


try:
    # They are what its publisher knows to encode.
    from sglang.srt.disaggregation.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
except ImportError:

    @dataclasses.dataclass
    class BlockStored:
        block_hashes: list[int]
        parent_block_hash: Optional[int]
        token_ids: list[int]
        block_size: int
        lora_id: Optional[int]
        medium: str = "GPU"

    @dataclasses.dataclass
    class BlockRemoved:
        block_hashes: list[int]
        medium: str = "GPU"

    @dataclasses.dataclass
    class AllBlocksCleared:
        pass


NAMESPACES_MAX = 1 << 16  # in one tree, of which the least used give way with all that is theirs
NAMESPACES_OPEN_MAX = 256  # that a cache keeps open, the last used ones; what others cached stays

PAGES_MAX = 1 << 20  # in one tree, where no pool says how many there can be; each costs 13 bytes when it opens
EVENT_PAGES_MAX = 1 << 16  # of changes kept until take_events
NO_BIGRAMS = "keys of bigrams are not cached"


class RadixKey:
    """A text of tokens and the namespace it is in. `limit` hides what lies behind so many tokens, without a copy."""

    __slots__ = ("token_ids", "extra_key", "is_bigram", "cache_salt", "limit")

    def __init__(self, token_ids, extra_key=None, is_bigram=False, cache_salt=None, limit=None):
        self.token_ids, self.extra_key, self.is_bigram = token_ids, extra_key, is_bigram
        self.cache_salt, self.limit = cache_salt, limit

    def raw_token_ids(self):
        """The tokens that can be seen."""
        return self.token_ids if self.limit is None else self.token_ids[: self.limit]

    def __len__(self) -> int:
        seen = len(self.token_ids) if self.limit is None else min(self.limit, len(self.token_ids))
        return max(0, seen - 1) if self.is_bigram else seen

    def __iter__(self):
        return iter(self.raw_token_ids())

    def _like(self, tokens) -> RadixKey:
        return RadixKey(tokens, self.extra_key, self.is_bigram, self.cache_salt)

    def __getitem__(self, at) -> RadixKey:
        tokens, last = self.raw_token_ids(), 1 if self.is_bigram else 0
        if isinstance(at, slice):
            first, end, step = at.indices(len(self))
            if step != 1:
                raise InvalidArgumentError("a key is sliced with step 1")
            return self._like(tokens[first : max(first, end) + (last if end > first else 0)])
        if not -len(self) <= at < len(self):
            raise IndexError("key index out of range")
        at %= len(self)
        return self._like(tokens[at : at + 1 + last])

    def page_aligned(self, page_size: int) -> RadixKey:
        return self[: page_align_floor(len(self), page_size)]

    def child_key(self, page_size: int):
        """What a tree would look the first page up by."""
        page = self.raw_token_ids()[: page_size + (1 if self.is_bigram else 0)]
        plain = page[0] if page_size == 1 and not self.is_bigram else tuple(page)
        if self.extra_key is None and self.cache_salt is None:
            return plain
        return self.extra_key, self.cache_salt, plain

    def match(self, other: RadixKey, page_size: int = 1) -> int:
        """Tokens that both begin with, in whole pages. ValueError across namespaces."""
        if (self.extra_key, self.cache_salt) != (other.extra_key, other.cache_salt):
            raise InvalidArgumentError("keys of different namespaces are not compared")
        length = min(len(self), len(other))
        mine, theirs = (numpy.asarray(key.raw_token_ids())[: length + self.is_bigram] for key in (self, other))
        differing = numpy.flatnonzero(mine != theirs)
        common = length if len(differing) == 0 else max(0, int(differing[0]) - self.is_bigram)
        return page_align_floor(min(common, length), page_size)

    def __repr__(self) -> str:
        tokens = list(itertools.islice(self.raw_token_ids(), 11))
        shown = ", ".join(map(str, tokens[:10])) + (", ..." if len(tokens) > 10 else "")
        return f"RadixKey([{shown}], extra_key={self.extra_key!r}, cache_salt={self.cache_salt!r})"


def _tokens_of(key: Any):
    """The tokens that can be seen of a key, which is of SGLang's own class where that makes it: older ones have no limit."""
    return key.raw_token_ids() if hasattr(key, "raw_token_ids") else key.token_ids


def _name_of(key: Any) -> tuple:
    """Of the namespace of such a key: where SGLang knows no salts, or has them in extra_key, there is none."""
    if getattr(key, "is_bigram", False):
        raise UnsupportedError(NO_BIGRAMS)
    return key.extra_key, getattr(key, "cache_salt", None)


class TreeNode:
    """The end of a cached prefix, on the device (`value`), in host memory (`host_value`), or both."""

    counter = 0

    def __init__(self, id: Optional[int] = None, match=None, host_match=None, key=None):
        if id is None:
            id, TreeNode.counter = TreeNode.counter, TreeNode.counter + 1
        self.id, self.key = id, key
        self.value = self.host_value = None
        self.hash_value: Optional[list[str]] = None
        self.host_ref_counter = 0
        self.last_access_time = self.creation_time = time.monotonic()
        self.hit_count = self.priority = 0
        self._match, self._host_match = match, host_match

    @property
    def lock_ref(self) -> int:
        return 0 if self._match is None else self._match.locks

    @property
    def evicted(self) -> bool:
        return self.value is None and (self._match is None or self._match.tokens == 0)

    @property
    def backuped(self) -> bool:
        return self.host_value is not None or self._host_match is not None

    def protect_host(self) -> None:
        self.host_ref_counter += 1

    def release_host(self) -> None:
        if self.host_ref_counter == 0:
            raise RuntimeError("release_host: the host copy is not protected")
        self.host_ref_counter -= 1

    def get_last_hash_value(self) -> Optional[str]:
        return self.hash_value[-1] if self.hash_value else None

    def __lt__(self, other: TreeNode) -> bool:
        return self.last_access_time < other.last_access_time


class _RootNode(TreeNode):
    """Where every text begins: locked forever, and never evicted."""

    lock_ref = 1
    evicted = backuped = False


# What of a leaf orders its eviction, smallest first; the names of `eviction_policy` give these to Stemma's own tree.


class LRUStrategy:
    def get_priority(self, node):
        return node.last_access_time


class LFUStrategy:
    def get_priority(self, node):
        return node.hit_count, node.last_access_time


class FIFOStrategy:
    def get_priority(self, node):
        return node.creation_time


class MRUStrategy:
    def get_priority(self, node):
        return -node.last_access_time


class FILOStrategy:
    def get_priority(self, node):
        return -node.creation_time


class PriorityStrategy:
    def get_priority(self, node):
        return node.priority, node.last_access_time


class SLRUStrategy:
    def __init__(self, protected_threshold: int = 2):
        self.protected_threshold = protected_threshold

    def get_priority(self, node):
        return int(node.hit_count >= self.protected_threshold), node.last_access_time


@dataclasses.dataclass
class MatchPrefixParams:
    key: RadixKey
    cow_mamba: bool = False
    req: Any = None


@dataclasses.dataclass
class InsertParams:
    key: RadixKey
    value: Optional[torch.Tensor] = None
    prev_prefix_len: int = 0
    chunked: bool = False
    priority: int = 0


@dataclasses.dataclass
class EvictParams:
    num_tokens: int = 0
    swa_num_tokens: int = 0
    mamba_num: int = 0


@dataclasses.dataclass
class InitLoadBackParams:
    best_match_node: TreeNode
    host_hit_length: int = 0
    mem_quota: Optional[int] = None
    req: Any = None


@dataclasses.dataclass
class InsertResult:
    prefix_len: int
    total_len: int = 0
    last_device_node: Optional[TreeNode] = None


@dataclasses.dataclass
class EvictResult:
    num_tokens_evicted: int = 0
    swa_num_tokens_evicted: int = 0
    mamba_num_evicted: int = 0


@dataclasses.dataclass
class DecLockRefParams:
    """What a lock says to whoever ends it: of sliding windows, which are not here."""

    swa_uuid_for_lock: Optional[int] = None
    swa_uuid_for_host_lock: Optional[int] = None
    skip_lock_node_ids: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class IncLockRefResult:
    delta: int = 0
    swa_uuid_for_lock: Optional[int] = None

    def to_dec_params(self) -> DecLockRefParams:
        return DecLockRefParams()


@dataclasses.dataclass
class DecLockRefResult:
    delta: int = 0


class MatchResult(NamedTuple):
    device_indices: torch.Tensor
    last_device_node: Optional[TreeNode]
    last_host_node: Optional[TreeNode]
    best_match_node: Optional[TreeNode]
    host_hit_length: int = 0
    cache_protected_len: Optional[int] = None
    full_kv_hit_length: int = 0
    # Of windows and states, which are not here.
    swa_host_hit_length: int = 0
    swa_branching_seqlen: Optional[int] = None
    mamba_host_hit_length: int = 0
    mamba_branching_seqlen: Optional[int] = None
    cache_actions: tuple = ()


# An event of SGLang's own class says where pages lie, unless it is of the first version.
_MEDIUM = {"medium": "GPU"} if "medium" in inspect.signature(BlockStored).parameters else {}


@dataclasses.dataclass
class CacheInitParams:
    """What a cache is built from. `tokens_max`: in the tree at most; None: the allocator's size, or PAGES_MAX pages.

    `disable_finished_insert`: of a request nothing is cached when it ends, so that no prompt goes on from KV of decoding.
    """

    disable: bool = False
    req_to_token_pool: Any = None
    token_to_kv_pool_allocator: Any = None
    page_size: int = 1
    eviction_policy: str = "lru"
    enable_kv_cache_events: bool = False
    is_eagle: bool = False
    tokens_max: Optional[int] = None
    disable_finished_insert: bool = False


def _event_hash(key: bytes) -> int:
    """A page's 256-bit key as the 64 signed bits that events carry."""
    return int.from_bytes(key[:8], "big", signed=True)


def _tensor(numbers) -> torch.Tensor:
    # numpy gives arrays without elements no memory that torch would take.
    if len(numbers) == 0:
        return torch.empty(0, dtype=torch.int64)
    return torch.from_numpy(numpy.asarray(numbers)).to(torch.int64)


class _Way:
    """Where texts end or part, and what of them is behind."""

    def __init__(self, depth: int, children: list[_Way], indices: list[int]):
        self.depth, self.children, self.indices = depth, children, indices
        self.rank = (0, 0)  # how many end behind, and of equals the first

    def count(self) -> None:
        """After it was of all children."""
        firsts = [child.rank[1] for child in self.children] + [-index for index in self.indices]
        self.rank = len(self.indices) + sum(child.rank[0] for child in self.children), max(firsts, default=0)


def _common_bytes(one: tuple[int, bytes], other: tuple[int, bytes], page_bytes: int) -> int:
    """With how many bytes, whole pages, both ends begin: (namespace, text)."""
    length = min(len(one[1]), len(other[1]))
    if one[0] != other[0] or length == 0:
        return 0
    texts = [numpy.frombuffer(text, dtype=numpy.uint8)[:length] for _, text in (one, other)]
    differing = numpy.flatnonzero(texts[0] != texts[1])
    return page_align_floor(int(differing[0]) if len(differing) else length, page_bytes)


def _ways_of(indices: dict[tuple[int, bytes], list[int]], page_bytes: int) -> _Way:
    """The tree of ends, from the order of their bytes: a text parts from the one before it where they differ."""
    root = _Way(0, [], [])
    path, before = [root], (0, b"")
    for end in sorted(indices):
        common = _common_bytes(before, end, page_bytes)
        while path[-1].depth > common:
            below = path.pop()
            if path[-1].depth < common:
                path[-1].children[-1] = parting = _Way(common, [below], [])
                path.append(parting)
        if len(end[1]) == path[-1].depth:
            path[-1].indices += indices[end]
        else:
            way = _Way(len(end[1]), [], list(indices[end]))
            path[-1].children.append(way)
            path.append(way)
        before = end
    return root


def _depth_first(ends: list[tuple[int, bytes]], page_bytes: int) -> list[int]:
    """The order in which a walk meets ends (namespace, text): the way to more of them first, longer ones before what ends."""
    indices = collections.defaultdict(list)
    for index, end in enumerate(ends):
        indices[end].append(index)
    ways = [_ways_of(indices, page_bytes)]
    for way in ways:  # grows
        ways += way.children
    for way in reversed(ways):
        way.count()
    last_first: list[int] = []
    todo = ways[:1]
    while todo:
        way = todo.pop()
        last_first += reversed(way.indices)
        todo += sorted(way.children, key=lambda child: child.rank, reverse=True)
    return last_first[::-1]


class _Requests:
    """The two calls by which a request's slots become the cache's, and what else is the same for every cache."""

    def init_metrics_collector(self) -> None:
        """SGLang's, where its caches have one."""
        begin = getattr(super(), "init_metrics_collector", None)
        if begin is not None:
            begin()

    def available_and_evictable_str(self) -> str:
        free, evictable = self.token_to_kv_pool_allocator.available_size(), self.evictable_size()
        return f"{free + evictable} tokens can be had: {free} are free and {evictable} evictable\n"

    def pretty_print(self) -> None:
        print(f"{self.total_size()} tokens: {self.evictable_size()} evictable, {self.protected_size()} protected")

    def swa_reprefill_tail_tokens(self) -> int:
        return 0

    def supports_swa(self) -> bool:
        return False

    supports_mamba = supports_fast_match_prefix = supports_streaming_session = supports_swa

    def _free(self, slots: torch.Tensor) -> None:
        if self.token_to_kv_pool_allocator is not None and len(slots) > 0:
            self.token_to_kv_pool_allocator.free(slots)

    def _row(self, req, length: int) -> torch.Tensor:
        row = request_part(req, "req_pool_idx").req_pool_idx
        return self.req_to_token_pool.req_to_token[row, :length].to(torch.int64)

    def _committed(self, req) -> int:
        counted = request_part(req, "pop_committed_kv_cache")
        if hasattr(counted, "pop_committed_kv_cache"):
            return counted.pop_committed_kv_cache()
        return request_part(req, "kv_committed_len").kv_committed_len

    def _protected(self, req) -> int:
        """Tokens of the request, from the first on, whose slots are the tree's: where it does not say, what it locks."""
        said = getattr(request_part(req, "cache_protected_len"), "cache_protected_len", None)
        if said is not None:
            return said
        match = getattr(getattr(req, "last_node", None), "_match", None)
        return 0 if match is None else match.tokens

    def _fill_ids(self, req):
        return req.get_fill_ids() if hasattr(req, "get_fill_ids") else req.fill_ids

    def cache_finished_req(
        self, req, is_insert: bool = True, *, kv_len_to_handle: Optional[int] = None, **_
    ) -> None:
        """The request has ended: its whole pages stay in the tree, everything else of it is freed.

        With kv_len_to_handle this is of its first so many tokens; what lies behind stays the caller's to free.
        """
        length = self._committed(req) if kv_len_to_handle is None else kv_len_to_handle
        slots = self._row(req, length)
        protected = self._protected(req)
        if self.disable or not is_insert or self.disable_finished_insert:
            self._free(slots[protected:])
        else:
            tokens = (list(req.origin_input_ids) + list(req.output_ids))[:length]
            key = RadixKey(tokens, getattr(req, "extra_key", None), cache_salt=getattr(req, "cache_salt", None))
            result = self.insert(InsertParams(key=key, value=slots, priority=getattr(req, "priority", 0) or 0))
            self._free(slots[protected : max(protected, result.prefix_len)])
            self._free(slots[max(protected, result.total_len) :])
        if getattr(req, "last_node", None) is not None:
            self.dec_lock_ref(req.last_node)

    def cache_unfinished_req(self, req, chunked: bool = False, **_) -> None:
        """A chunk is computed: its whole pages go into the tree, and the row names the tree's slots from now on."""
        tokens = self._fill_ids(req)
        slots = self._row(req, len(tokens))
        if self.disable or getattr(req, "skip_radix_cache_insert", False):
            req.prefix_indices = slots
            return
        protected = self._protected(req)
        key = RadixKey(tokens, getattr(req, "extra_key", None), cache_salt=getattr(req, "cache_salt", None))
        params = InsertParams(key=key, value=slots, chunked=chunked, priority=getattr(req, "priority", 0) or 0)
        result = self.insert(params)
        node = result.last_device_node
        shared = self._slots_of(node)
        if node is not self.root_node:
            node._match.lock()  # where it was just found; inc_lock_ref would look at the sizes before
        self._free(slots[protected : max(protected, result.prefix_len)])
        if len(shared) > protected:
            row = request_part(req, "req_pool_idx").req_pool_idx
            where = (row, slice(protected, len(shared)))
            self.req_to_token_pool.write(where, shared[protected:].to(torch.int32))
        if getattr(req, "last_node", None) is not None:
            self.dec_lock_ref(req.last_node)
        request_part(req, "cache_protected_len").cache_protected_len = len(shared)
        req.prefix_indices = torch.cat([shared, slots[len(shared) :]])
        req.last_node = node


class _Namespaces:
    """The namespaces of one tree by (extra_key, cache_salt); the last used ones are kept open."""

    def __init__(self, index: _stemma.SlotIndex):
        self._index = index
        self._open: dict[tuple, _stemma.SlotNamespace] = {}
        self._names: dict[int, tuple] = {0: (None, None)}

    def open(self, name: tuple) -> Optional[_stemma.SlotNamespace]:
        """TooLargeError where it is new and as many as there can be are held, by requests and here."""
        if name == (None, None):
            return None
        if name in self._open:
            self._open[name] = opened = self._open.pop(name)
            return opened
        while len(self._open) >= NAMESPACES_OPEN_MAX:
            del self._open[next(iter(self._open))]
        self._open[name] = opened = self._index.namespace(*name)
        self._names[opened.number] = name  # a number is another's only when nothing is left of the first
        return opened

    def match_or_none(self, tokens, name: tuple) -> Optional[_stemma.SlotMatch]:
        """None where it cannot be opened: nothing is cached there."""
        try:
            namespace = self.open(name)
        except TooLargeError:
            return None
        return self._index.match(tokens, namespace)

    def name_of(self, number: int) -> tuple:
        return self._names[number]


class RadixCache(_Requests, BasePrefixCache):
    """A prefix cache over slots that SGLang's allocator hands out."""

    def __init__(self, params: CacheInitParams):
        self.disable, self.page_size = params.disable, params.page_size
        if getattr(params, "is_eagle", False) and not self.disable:  # SGLang has its caches make the bigrams
            raise UnsupportedError(NO_BIGRAMS)
        self.disable_finished_insert = getattr(params, "disable_finished_insert", False)
        self.req_to_token_pool = params.req_to_token_pool
        self.token_to_kv_pool_allocator = params.token_to_kv_pool_allocator
        self.device = torch.device(getattr(self.token_to_kv_pool_allocator, "device", None) or "cpu")
        self.eviction_policy = params.eviction_policy.lower()
        self.enable_kv_cache_events = getattr(params, "enable_kv_cache_events", False)
        tokens_max = getattr(params, "tokens_max", None)
        if tokens_max is None:
            size = getattr(self.token_to_kv_pool_allocator, "size", None)
            tokens_max = size if isinstance(size, int) and size >= self.page_size else self.page_size * PAGES_MAX
        self._index = _stemma.SlotIndex(
            page_size=self.page_size,
            tokens_max=tokens_max,
            eviction=self.eviction_policy,
            events_pages_max=EVENT_PAGES_MAX if self.enable_kv_cache_events else 0,
            namespaces_max=NAMESPACES_MAX,
        )
        self._namespaces = _Namespaces(self._index)
        self._warn_full = FirstWarning(__name__)
        self.root_node = _RootNode()

    @classmethod
    def create_simulated(cls, disable=False, mock_allocator=None, page_size=1, enable_kv_cache_events=False):
        """A cache without pools."""
        return cls(
            CacheInitParams(
                disable=disable,
                token_to_kv_pool_allocator=mock_allocator,
                page_size=page_size,
                enable_kv_cache_events=enable_kv_cache_events,
                tokens_max=page_size * PAGES_MAX,
            )
        )

    def _match(self, key: RadixKey) -> tuple[int, TreeNode]:
        match = self._namespaces.match_or_none(_tokens_of(key), _name_of(key))
        return (0, self.root_node) if match is None else (match.tokens, self._node(match))

    def _node(self, match) -> TreeNode:
        return TreeNode(match=match) if match.tokens > 0 else self.root_node

    def _slots_of(self, node: TreeNode) -> torch.Tensor:
        slots = _tensor(node._match.slots()) if node._match is not None else _tensor(())
        return slots if self.device.type == "cpu" else slots.to(self.device, non_blocking=True)

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """The longest cached prefix of the key, in whole pages, and the node in which it ends."""
        if self.disable:
            return MatchResult(self._slots_of(self.root_node), self.root_node, self.root_node, self.root_node)
        _, node = self._match(params.key)
        slots = self._slots_of(node)
        return MatchResult(slots, node, node, node, full_kv_hit_length=len(slots))

    def insert(self, params: InsertParams) -> InsertResult:
        """Takes the slots of what is not cached yet of the whole pages of the key; the others stay the caller's.

        All of them do where there is no room for what is new, or no name for its namespace: `total_len` is then what was
        cached before.
        """
        if self.disable:
            return InsertResult(0)
        key, name = params.key, _name_of(params.key)
        tokens = _tokens_of(key)
        slots = tokens if params.value is None else params.value.cpu()
        try:
            namespace = self._namespaces.open(name)
            prefix_len, match = self._index.insert(tokens, slots, namespace, params.priority or 0)
        except TooLargeError as error:  # which would end the scheduler
            self._warn_full("what does not fit is not cached: %s", error)
            prefix_len, node = self._match(key)
            return InsertResult(prefix_len, prefix_len, node)
        return InsertResult(prefix_len, match.tokens, self._node(match))

    def evict(self, params: EvictParams) -> EvictResult:
        """Frees the coldest whole pages: so many tokens, or all that nobody locks."""
        if self.disable or params.num_tokens <= 0:
            return EvictResult()
        begin = time.perf_counter()
        slots = _tensor(self._index.evict(params.num_tokens))
        self._free(slots.to(self.device))
        if hasattr(self, "update_eviction_metrics"):  # SGLang's
            self.update_eviction_metrics(len(slots), begin)
        return EvictResult(len(slots))

    evict_for_alloc = evict

    def inc_lock_ref(self, node: TreeNode) -> IncLockRefResult:
        """Locks all down to the node. `delta` is what became evictable: 0 or less."""
        if self.disable or node is None or node._match is None:  # as the root's
            return IncLockRefResult()
        before = self.evictable_size()
        node._match.lock()
        return IncLockRefResult(self.evictable_size() - before)

    def dec_lock_ref(self, node: TreeNode, params: Any = None) -> DecLockRefResult:
        if self.disable or node is None or node._match is None:
            return DecLockRefResult()
        before = self.evictable_size()
        node._match.unlock()
        return DecLockRefResult(self.evictable_size() - before)

    def reset(self) -> None:
        """Forgets everything. No node may be locked."""
        self._index.reset()

    def evictable_size(self) -> int:
        return self._index.usage()[0]

    def protected_size(self) -> int:
        return self._index.usage()[1]

    full_evictable_size, full_protected_size = evictable_size, protected_size

    def total_size(self) -> int:
        return sum(self._index.usage())

    def all_values_flatten(self) -> torch.Tensor:
        """Every slot in the tree, in no order."""
        return _tensor(self._index.slots())

    def sanity_check(self) -> None:
        """Checks every invariant of the tree; raises stemma.InternalError with the first breach."""
        self._index.audit()

    def take_events(self) -> list:
        """What changed since the last call, a page an event. Empty where events were not asked for."""
        events: list = []
        for kind, keys, parent, tokens in self._index.drain_events():
            hashes = [_event_hash(key) for key in keys]
            if kind == "cleared":
                events.append(AllBlocksCleared())
            elif kind == "removed":
                events.extend(BlockRemoved([one], **_MEDIUM) for one in hashes)
            else:
                texts = numpy.asarray(tokens).reshape(-1, self.page_size).tolist()
                parents = [None if parent is None else _event_hash(parent), *hashes[:-1]]
                events.extend(
                    BlockStored([one], before, text, self.page_size, None, **_MEDIUM)
                    for one, before, text in zip(hashes, parents, texts)
                )
        return events

    def is_backuped(self, node: TreeNode) -> bool:
        return node.backuped

    def is_root(self, node: TreeNode) -> bool:
        return node is self.root_node

    def root_node_handle(self, extra_key: Optional[str] = None) -> TreeNode:
        return self.root_node

    def _hashes(self, node: TreeNode) -> list[str]:
        """Of the pages down to a node: what it says, else the chain by which SGLang names pages, of its namespace."""
        if node.hash_value is not None or node._match is None:
            return list(node.hash_value or [])
        name = self._namespaces.name_of(node._match.namespace)
        before = b"" if name == (None, None) else hashlib.sha256(json.dumps(name).encode()).digest()
        hashes = []
        for page in numpy.asarray(node._match.text()).astype("<u4").reshape(-1, self.page_size):
            before = hashlib.sha256(before + page.tobytes()).digest()
            hashes.append(before.hex())
        return hashes

    def get_last_hash_value(self, node: TreeNode) -> Optional[str]:
        """Of the page in which the node ends; None at the root."""
        return next(reversed(self._hashes(node)), None)

    def get_prefix_hash_values(self, node: TreeNode) -> list[str]:
        """Of the pages before that one, from the first on."""
        return self._hashes(node)[:-1]

    def dfs_weight_order(self, node_handles) -> list[int]:
        """Indices of the nodes, those of one beginning together: the beginning that most of them have comes first."""
        matches = [node._match for node in node_handles]
        texts = [b"" if match is None else numpy.asarray(match.text()).astype(">u4").tobytes() for match in matches]
        namespaces = [0 if match is None else match.namespace for match in matches]
        return _depth_first(list(zip(namespaces, texts)), 4 * self.page_size)

    def is_chunk_cache(self) -> bool:
        return False

    def is_tree_cache(self) -> bool:
        return True


class ChunkCache(_Requests, BasePrefixCache):
    """Shares nothing: what a request computed is its own, and freed when it ends."""

    disable = True

    def __init__(self, params: CacheInitParams):
        self.req_to_token_pool = params.req_to_token_pool
        self.token_to_kv_pool_allocator = params.token_to_kv_pool_allocator
        self.page_size = params.page_size

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        return MatchResult(_tensor(()), None, None, None)

    def insert(self, params: InsertParams) -> InsertResult:
        return InsertResult(0)

    def evict(self, params: EvictParams) -> EvictResult:
        return EvictResult()

    def inc_lock_ref(self, node: Any) -> IncLockRefResult:
        return IncLockRefResult()

    def dec_lock_ref(self, node: Any, params: Any = None) -> DecLockRefResult:
        return DecLockRefResult()

    def evictable_size(self) -> int:
        return 0

    protected_size = total_size = evictable_size

    def reset(self) -> None:
        pass

    def is_chunk_cache(self) -> bool:
        return True

    def is_tree_cache(self) -> bool:
        return False


def evict_from_tree_cache(tree_cache, num_tokens: int) -> None:
    """Makes room for `num_tokens`: evicts so many where fewer are free."""
    if tree_cache is None or tree_cache.is_chunk_cache():
        return
    if tree_cache.token_to_kv_pool_allocator.available_size() < num_tokens:
        tree_cache.evict(EvictParams(num_tokens))


class HiRadixCache(RadixCache):
    """A RadixCache with a second tree over host memory.

    `host_pool` has `size` (tokens) and two copies: `backup(device_slots, host_slots)` and `load(host_slots,
    device_slots)`, both int64 [tokens], done when they return. `write_policy` is "write_through" (what is inserted is
    copied), "write_through_selective" (what was matched, too) or "write_back" (what is about to be evicted). A copy that
    raises lets the call fail that it is part of, but for insert: the slots are the tree's then, with a host copy or without.
    """

    load_back_threshold = 10  # fewer tokens are computed rather than loaded

    def __init__(self, params: CacheInitParams, host_pool, write_policy: str = "write_through_selective"):
        if write_policy not in ("write_through", "write_through_selective", "write_back"):
            raise InvalidArgumentError(f"write_policy: {write_policy!r} is none of SGLang's")
        super().__init__(params)
        self.host_pool, self.write_policy = host_pool, write_policy
        self._host_slots = HostSlotPool(page_align_floor(host_pool.size, self.page_size), self.page_size)
        self._host = _stemma.SlotIndex(
            page_size=self.page_size, tokens_max=self._host_slots.size, namespaces_max=NAMESPACES_MAX
        )
        self._host_namespaces = _Namespaces(self._host)

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """As RadixCache; beyond the device's tokens, `host_hit_length` more are in host memory."""
        result = super().match_prefix(params)
        if self.disable:
            return result
        ns = _name_of(params.key)
        if self.write_policy == "write_through_selective" and result.last_device_node is not self.root_node:
            self._back_up(result.last_device_node._match, ns, result.last_device_node._match.hot_tokens(1))
        found = self._host_namespaces.match_or_none(_tokens_of(params.key), ns)
        if found is None:
            return result
        device_tokens = len(result.device_indices)
        last = result.last_device_node
        if found.tokens > device_tokens:
            node = TreeNode(match=last._match, host_match=found, key=ns)
            more = found.tokens - device_tokens
            return result._replace(
                last_host_node=node, best_match_node=node, host_hit_length=more, full_kv_hit_length=found.tokens
            )
        if found.tokens > 0 and last is not self.root_node:
            last._host_match = found if found.tokens == device_tokens else None
        return result

    def insert(self, params: InsertParams) -> InsertResult:
        result = super().insert(params)
        if not self.disable and self.write_policy == "write_through" and result.total_len > 0:
            match = result.last_device_node._match
            try:
                self._back_up(match, _name_of(params.key), match.tokens)
            except Exception:
                # Whoever inserts has to learn that its slots are not its own any more.
                logging.getLogger(__name__).warning("what was inserted has no host copy", exc_info=True)
        return result

    def _back_up(self, match, ns: tuple, tokens: int) -> int:
        """Copies the first `tokens` of a match to host memory, as far as they are not there. How many that were."""
        text = numpy.asarray(match.text())[:tokens]
        held = self._host_namespaces.match_or_none(text, ns)
        missing = 0 if held is None else len(text) - held.tokens
        if missing == 0:
            return 0
        held.lock()  # making room must not take what is gone on from
        try:
            host_slots = self._take_host(missing)
            if host_slots is None:
                return 0
            try:
                self.host_pool.backup(_tensor(match.slots(held.tokens))[:missing], host_slots)
            except BaseException:
                self._host_slots.free(host_slots)
                raise
            places = torch.cat([torch.zeros(held.tokens, dtype=torch.int64), host_slots])
            self._host.insert(text, places, self._host_namespaces.open(ns))
            return missing
        finally:
            held.unlock()

    def _take_host(self, tokens: int):
        missing = tokens - self._host_slots.available_size()
        if missing > 0:
            self.evict_host(missing)
        return self._host_slots.alloc(tokens)

    def evict(self, params: EvictParams) -> EvictResult:
        """As RadixCache. With write_back, what goes is copied to host memory before, as far as there is room."""
        if self.write_policy == "write_back" and not self.disable and params.num_tokens > 0:
            self._back_up_coldest(params.num_tokens)
        return super().evict(params)

    def _back_up_coldest(self, tokens: int) -> None:
        leaves = []
        try:
            while tokens > 0 and (leaf := self._index.lock_coldest()) is not None:
                leaves.append(leaf[1])
                tokens -= leaf[0]
            for match in leaves:
                self._back_up(match, self._namespaces.name_of(match.namespace), match.tokens)
        finally:
            for match in reversed(leaves):
                match.unlock()

    def evict_host(self, num_tokens: int) -> int:
        """Frees the coldest host copies; how many tokens."""
        slots = _tensor(self._host.evict(num_tokens))
        self._host_slots.free(slots)
        return len(slots)

    def init_load_back(self, params: InitLoadBackParams):
        """Brings what is in host memory of a match to the device: (the slots behind what the match found on the device,
        the node that it ends in now). Of these slots others may have brought the first meanwhile.

        All is loaded or nothing: nothing where it is less than load_back_threshold or more than mem_quota or the pool has;
        what others brought is there all the same. None where what the match found is on the device no more.
        """
        node = params.best_match_node
        found = TreeNode(match=node._match) if node._match is not None else self.root_node
        nothing = self._slots_of(self.root_node), found
        if node._host_match is None or node.key is None:
            return nothing
        text = numpy.asarray(node._host_match.text())
        held = self._namespaces.match_or_none(text, node.key)
        source = self._host.match(text, self._host_namespaces.open(node.key))
        known = node._match.tokens if node._match is not None else 0
        if held is None or held.tokens < known:
            return nothing
        brought = _tensor(held.slots(known)).to(self.device)
        there = (brought, TreeNode(match=held)) if held.tokens > known else nothing
        missing = source.tokens - held.tokens
        too_many = params.mem_quota is not None and missing > params.mem_quota
        if missing < self.load_back_threshold or too_many:
            return there
        held.lock()
        source.lock()  # evicting from the device may copy down
        try:
            slots = self._take_device(missing)
            if slots is None:
                return there
            try:
                self.host_pool.load(_tensor(source.slots(held.tokens)), slots)
            except BaseException:
                self.token_to_kv_pool_allocator.free(slots)
                raise
            places = torch.cat([torch.zeros(held.tokens, dtype=torch.int64), slots.cpu()])
            _, match = self._index.insert(text[: source.tokens], places, self._namespaces.open(node.key))
            return torch.cat([brought, slots]), TreeNode(match=match, host_match=source)
        finally:
            held.unlock()
            source.unlock()

    def _take_device(self, tokens: int):
        slots = self.token_to_kv_pool_allocator.alloc(tokens)
        if slots is None:
            missing = tokens - self.token_to_kv_pool_allocator.available_size()
            if missing > self.evictable_size():
                return None
            self.evict(EvictParams(missing))
            slots = self.token_to_kv_pool_allocator.alloc(tokens)
        return slots

    def host_total_size(self) -> int:
        return sum(self._host.usage())

    def reset(self) -> None:
        super().reset()
        self._host.reset()
        self._host_slots.clear()

    def sanity_check(self) -> None:
        super().sanity_check()
        self._host.audit()

    def check_hicache_events(self) -> None:
        """Copies are done when they return: there is nothing to wait for. So also of the next four."""

    loading_check = flush_write_through_acks = shutdown = check_hicache_events

    def writing_check(self, write_back: bool = False) -> None:
        pass

    def ready_to_load_host_cache(self) -> int:
        return -1


def _suffix_of(storage_config: Any) -> str:
    """The model and the rank, as far as ranks differ in what they have of a page: those of one MLA stage all have the same."""

    def field(name: str) -> Any:
        return getattr(storage_config, name, None)

    parts = ["model_name"] if field("is_mla_model") else ["model_name", "tp_rank", "tp_size"]
    suffix = "".join(f"_{field(part)}" for part in parts if field(part) is not None)
    for kind in ("pp", "attn_cp"):
        if (field(f"{kind}_size") or 1) > 1:
            suffix += f"_{kind}{field(f'{kind}_rank')}of{field(f'{kind}_size')}"
    return suffix


def _form_of(pool: Any) -> str:
    """How a host pool lays out a page and what of: the same length of bytes of another form is another page."""
    flat = pool.get_dummy_flat_data_page()
    fields = {"layout": getattr(pool, "layout", None), "dtype": flat.dtype, "numbers": flat.numel()}
    # What the bytes of codes mean, only the pool on the device says.
    fields["device_dtype"] = getattr(getattr(pool, "device_pool", None), "dtype", None)
    for name in ("page_size", "layer_num", "head_num", "head_dim", "kv_lora_rank", "qk_rope_head_dim"):
        fields[name] = getattr(pool, name, None)
    return "".join(f"_{name}={value}" for name, value in fields.items() if value is not None)


class StemmaHiCacheStorage(HiCacheStorage):
    """SGLang's HiCacheStorage over a stemma.PageStore: pages of host memory by their hashes.

    The store is given, or opened from storage_config.extra_config: directory and bytes_max, or remote and secret, and
    value_bytes (of a page, all layers). Keys are of one model and rank, which `suffix` tells apart in a store, and of the
    layout, dtype and shape of the host pool's pages, once it is registered. SGLang knows a model by its name: `namespace`
    beside the store's options tells weights apart that have had the same one.
    """

    def __init__(
        self,
        storage_config: Any = None,
        kwargs: Any = None,  # SGLang's, for any storage; nothing of it is wanted here
        *,
        store: Optional[_stemma.PageStore] = None,
        suffix: str = "",
    ):
        self._extra = getattr(storage_config, "extra_config", None) or {}
        self._store = store or open_store(self._extra)
        self._suffix = suffix or _suffix_of(storage_config)
        if "namespace" in self._extra:
            self._suffix += f"_ns={self._extra['namespace']}"
        self._pool: Any = None
        self._form = ""

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Of a group of pools, that of keys and values: the group has its pages, but does not say what they consist of."""
        group_anchor = getattr(mem_pool_host, "anchor_entry", None)
        pool = mem_pool_host if group_anchor is None else group_anchor.host_pool
        page = pool.get_dummy_flat_data_page()
        check_page_fits(self._extra, page.numel() * page.element_size())
        self._pool, self._form = pool, _form_of(pool)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: str) -> None:
        """Refused but for the pool of keys and values: pages without what goes with them would be found, or end the thread
        that brings them up, as SGLang asks for both in calls that are not here."""
        if host_pool_name != "kv":
            raise UnsupportedError(f"{host_pool_name}: pools beside that of keys and values are not stored")

    def _name(self, key: str) -> str:
        return key + self._suffix + self._form

    def get(self, key: str, target_location: Optional[torch.Tensor] = None, target_sizes: Any = None):
        """The target, filled; None: there is no such page, or not of this length."""
        value = self._store.get(self._name(key))
        if value is None or len(value) != target_location.numel() * target_location.element_size():
            return None
        page = torch.frombuffer(bytearray(value), dtype=target_location.dtype)
        return target_location.copy_(page.view(target_location.shape))

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list:
        return [self.get(key, target) for key, target in zip(keys, target_locations)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Whether the page is stored now. What a key has already stays."""
        page = value.contiguous().view(-1).view(torch.uint8)
        return self._store.put(self._name(key), page.numpy())

    def batch_set(self, keys: list[str], values: Any = None, *_: Any) -> bool:
        return all([self.set(key, value) for key, value in zip(keys, values)])

    def exists(self, key: str) -> bool:
        return self._store.exists([self._name(key)]) == 1

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """How many keys, from the first one on, are there."""
        return self._store.exists([self._name(key) for key in keys])

    def batch_get_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None) -> list[bool]:
        """Fills the host pool's pages at host_indices, one page_size of them a key; whether each came."""
        came = []
        for key, index in zip(keys, host_indices[:: self._pool.page_size].tolist()):
            page = self.get(key, self._pool.get_dummy_flat_data_page())
            if page is not None:
                self._pool.set_from_flat_data_page(index, page)
            came.append(page is not None)
        return came

    def batch_set_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None) -> list[bool]:
        """Stores the host pool's pages at host_indices; whether each is stored."""
        places = host_indices[:: self._pool.page_size].tolist()
        return [self.set(key, self._pool.get_data_page(index, flat=True)) for key, index in zip(keys, places)]

    def clear(self) -> None:
        """Removes every page of the store, of whichever suffix."""
        empty_store(self._store)

    def get_stats(self) -> None:
        """None: SGLang's metrics take figures of its own class only, of how fast pages came. A PageStore's `stats` says more."""

    def close(self) -> None:
        self._store.close()


def _register() -> None:
    try:
        from sglang.srt.mem_cache.registry import register_radix_cache_backend
    except ImportError:
        return
    register_radix_cache_backend("stemma", _made_for)


def _made_for(context: Any) -> RadixCache:
    """The cache of an engine, where a prefix is no more than the keys and values that the tree has."""
    for name in ("is_hybrid_swa", "is_hybrid_ssm", "enable_hierarchical_cache"):
        if getattr(context, name, False):
            raise UnsupportedError(f"--radix-cache-backend stemma: {name} is not known to this cache")
    return RadixCache(context.params)


_register()
