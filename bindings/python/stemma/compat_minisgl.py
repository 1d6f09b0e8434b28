"""mini-SGLang's cache interfaces over Stemma's prefix tree.

Importing this module where `minisgl` is installed registers the cache as "stemma" (`--cache-type stemma`); it must be
imported before the arguments are parsed, and in the processes of its schedulers: docs/PYTHON.md has a script for both.
Names here are mini-SGLang's own. Sizes are tokens; slots are int32 [tokens] on the device.

A handle holds nothing until it is locked. It stays good when others split the tree; locking one whose prefix was
evicted meanwhile raises stemma.NotFoundError.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import torch

from . import _stemma
from ._first_warning import FirstWarning
from .errors import InvalidArgumentError, TooLargeError

try:
    from minisgl.kvcache import SUPPORTED_CACHE_MANAGER
    from minisgl.kvcache.base import (
        BaseCacheHandle,
        BaseKVCachePool,
        BasePrefixCache,
        InsertResult,
        MatchResult,
        SizeInfo,
    )
except ImportError:
    SUPPORTED_CACHE_MANAGER = None

    class BaseKVCachePool(ABC):
        """Stands for mini-SGLang's, where that is not installed; so do the others."""

    class BasePrefixCache(ABC):
        pass

    @dataclass(frozen=True)
    class BaseCacheHandle(ABC):
        cached_len: int

    class SizeInfo(NamedTuple):
        evictable_size: int
        protected_size: int

        @property
        def total_size(self) -> int:
            return self.evictable_size + self.protected_size

    class InsertResult(NamedTuple):
        cached_len: int
        handle: BaseCacheHandle

    class MatchResult(NamedTuple):
        cuda_handle: BaseCacheHandle


# Pages that one cache can hold where nobody says how many there will be; each costs 13 bytes when it opens.
PAGES_MAX = 1 << 20


def _on(device: torch.device, numbers: _stemma.NumberList) -> torch.Tensor:
    # An array of numpy without elements has no memory that torch would take.
    if len(numbers) == 0:
        return torch.empty(0, dtype=torch.int32, device=device)
    slots = torch.from_numpy(numpy.asarray(numbers))
    return slots if device.type == "cpu" else slots.to(device, non_blocking=True)


class StemmaCacheHandle(BaseCacheHandle):
    """A prefix that was matched or inserted; `cached_len` tokens of it are cached, in whole pages."""

    __slots__ = ("_match", "_device")

    def __init__(self, match: _stemma.SlotMatch, device: torch.device):
        object.__setattr__(self, "cached_len", match.tokens)
        object.__setattr__(self, "_match", match)
        object.__setattr__(self, "_device", device)

    def get_matched_indices(self) -> torch.Tensor:
        """The slots of the prefix. Of a root handle, none."""
        return _on(self._device, self._match.slots())

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


class StemmaPrefixCache(BasePrefixCache):
    """A prefix cache over slots that mini-SGLang's scheduler hands out.

    `tokens_max`: it holds at most; None: the pages of mini-SGLang's pool, or PAGES_MAX where that cannot be had.
    """

    def __init__(self, device: torch.device | str, page_size: int | None = None, tokens_max: int | None = None):
        super().__init__()
        self.device = torch.device(device)
        self.page_size = _context_page_size() if page_size is None else page_size
        tokens_max = self.page_size * _context_pages() if tokens_max is None else tokens_max
        self._warn_full = FirstWarning(__name__)
        self._index = _stemma.SlotIndex(page_size=self.page_size, tokens_max=tokens_max)
        self._no_slots = torch.empty(0, dtype=torch.int32, device=self.device)

    def match_prefix(self, input_ids: torch.Tensor) -> MatchResult:
        """The longest cached prefix of `input_ids`, 1-D int32 on the CPU, in whole pages."""
        return MatchResult(StemmaCacheHandle(self._index.match(input_ids), self.device))

    def insert_prefix(self, input_ids: torch.Tensor, indices: torch.Tensor) -> InsertResult:
        """Takes the slots `indices` of what is not cached yet of the whole pages of `input_ids`, and copies them.

        `cached_len` tokens were cached before: the slots of these stay the caller's. So do all where tokens_max has no
        room for what is new: the handle then ends where what was cached before ends.
        """
        slots = indices if indices.device.type == "cpu" else indices.cpu()
        try:
            cached_len, match = self._index.insert(input_ids, slots)
        except TooLargeError as error:  # which would end the scheduler
            self._warn_full("what does not fit is not cached: %s", error)
            match = self._index.match(input_ids)
            cached_len = match.tokens
        return InsertResult(cached_len, StemmaCacheHandle(match, self.device))

    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        """Locks the handle's prefix against eviction, or ends one lock of it."""
        if unlock:
            handle._match.unlock()
        else:
            handle._match.lock()

    def evict(self, size: int) -> torch.Tensor:
        """The slots, page by page, of the coldest pages: `size` tokens, rounded up to whole pages.

        RuntimeError, and nothing is evicted, where less than that is evictable.
        """
        if size == 0:
            return self._no_slots
        evictable, _ = self._index.usage()
        if size > evictable:
            raise RuntimeError(f"evict: {size} tokens are wanted and {evictable} are evictable")
        return _on(self.device, self._index.evict(size))

    def reset(self) -> None:
        """Forgets everything. No handle may be locked."""
        self._index.reset()

    @property
    def size_info(self) -> SizeInfo:
        return SizeInfo(*self._index.usage())

    def check_integrity(self) -> None:
        """Checks every invariant of the tree; raises stemma.InternalError with the first breach."""
        self._index.audit()


class RadixCacheManager(StemmaPrefixCache):
    """The interface of mini-SGLang's first version: pairs and numbers instead of named results."""

    def __init__(self, device: torch.device | str, page_size: int = 1, tokens_max: int | None = None):
        super().__init__(device, page_size, tokens_max)

    def match_prefix(self, input_ids: torch.Tensor) -> tuple[StemmaCacheHandle, torch.Tensor]:
        handle = super().match_prefix(input_ids)[0]
        return handle, handle.get_matched_indices()

    def insert_prefix(self, input_ids: torch.Tensor, indices: torch.Tensor) -> int:
        cached_len, handle = super().insert_prefix(input_ids, indices)
        # Where it could not be kept nothing of it is the cache's: the caller frees up to what is returned.
        is_kept = handle.cached_len == len(input_ids) // self.page_size * self.page_size
        return cached_len if is_kept else len(indices)


class _NoPrefix:
    """What a cache that keeps nothing matches."""

    tokens = 0

    def lock(self) -> None:
        pass

    unlock = lock

    def slots(self) -> tuple:
        return ()


class NaiveCacheManager(BasePrefixCache):
    """Keeps nothing: every match is empty, and nothing can be evicted."""

    def __init__(self, device: torch.device | str):
        super().__init__()
        self.device = torch.device(device)
        self._handle = StemmaCacheHandle(_NoPrefix(), self.device)
        self._no_slots = torch.empty(0, dtype=torch.int32, device=self.device)

    def match_prefix(self, input_ids: torch.Tensor) -> tuple[StemmaCacheHandle, torch.Tensor]:
        return self._handle, self._no_slots

    def insert_prefix(self, input_ids: torch.Tensor, indices: torch.Tensor) -> int:
        return len(indices)  # all of them are the caller's to free

    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        pass

    def evict(self, size: int) -> torch.Tensor:
        if size > 0:
            raise RuntimeError(f"evict: {size} tokens are wanted and nothing is kept")
        return self._no_slots

    def reset(self) -> None:
        pass

    @property
    def size_info(self) -> SizeInfo:
        return SizeInfo(0, 0)

    def check_integrity(self) -> None:
        pass


class StemmaKVCachePool(BaseKVCachePool):
    """Keys and values of all layers in one allocation, [2, layers, pages, page_size, kv_heads, head_dim]."""

    def __init__(
        self,
        num_kv_heads: int,
        num_layers: int,
        head_dim: int,
        num_pages: int,
        dtype: torch.dtype,
        device: torch.device | str,
        page_size: int = 1,
    ):
        super().__init__()
        shape = (2, num_layers, num_pages, page_size, num_kv_heads, head_dim)
        self._device = torch.device(device)
        self._buffer = torch.zeros(shape, dtype=dtype, device=self._device)
        self._rows = self._buffer.view(2, num_layers, num_pages * page_size, num_kv_heads, head_dim)

    def k_cache(self, index: int) -> torch.Tensor:
        """The keys of a layer, [pages, page_size, kv_heads, head_dim]."""
        return self._buffer[0, index]

    def v_cache(self, index: int) -> torch.Tensor:
        return self._buffer[1, index]

    def store_kv(self, k: torch.Tensor, v: torch.Tensor, out_loc: torch.Tensor, layer_id: int) -> None:
        """Writes row i of k and v, [tokens, kv_heads, head_dim] or the last two as one, to slot out_loc[i]."""
        keys, values = self._rows[0, layer_id], self._rows[1, layer_id]
        where = out_loc.to(torch.int64)
        keys.index_copy_(0, where, k.reshape(-1, *keys.shape[1:]).to(keys.dtype))
        values.index_copy_(0, where, v.reshape(-1, *values.shape[1:]).to(values.dtype))

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        return self._buffer.dtype

    @property
    def num_layers(self) -> int:
        return self._buffer.shape[1]


def _context_page_size() -> int:
    if SUPPORTED_CACHE_MANAGER is None:
        raise InvalidArgumentError("page_size: is wanted where minisgl is not installed")
    from minisgl.core import get_global_ctx

    return get_global_ctx().page_size


def _context_pages() -> int:
    """As many as the pool has: mini-SGLang evicts only where none of them is free."""
    if SUPPORTED_CACHE_MANAGER is None:
        return PAGES_MAX
    from minisgl.core import get_global_ctx

    try:
        pool = getattr(get_global_ctx(), "kv_cache", None)
    except AssertionError:  # there is no context yet
        pool = None
    return PAGES_MAX if pool is None else pool.k_cache(0).shape[0]


if SUPPORTED_CACHE_MANAGER is not None:

    @SUPPORTED_CACHE_MANAGER.register("stemma")
    def _create(device: torch.device) -> StemmaPrefixCache:
        return StemmaPrefixCache(device)
