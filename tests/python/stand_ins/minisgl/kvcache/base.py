"""The classes that caches and pools derive from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Optional


class BaseKVCachePool(ABC):
    @abstractmethod
    def k_cache(self, index): ...

    @abstractmethod
    def v_cache(self, index): ...

    @abstractmethod
    def store_kv(self, k, v, out_loc, layer_id): ...

    @property
    @abstractmethod
    def device(self): ...

    @property
    @abstractmethod
    def dtype(self): ...

    @property
    @abstractmethod
    def num_layers(self): ...


@dataclass(frozen=True)
class BaseCacheHandle(ABC):
    cached_len: int

    @abstractmethod
    def get_matched_indices(self): ...


class SizeInfo(NamedTuple):
    evictable_size: int
    protected_size: int

    @property
    def total_size(self):
        return self.evictable_size + self.protected_size


class InsertResult(NamedTuple):
    cached_len: int
    handle: BaseCacheHandle


class MatchResult(NamedTuple):
    cuda_handle: BaseCacheHandle
    host_handle: Optional[BaseCacheHandle] = None


class BasePrefixCache(ABC):
    @abstractmethod
    def match_prefix(self, input_ids): ...

    @abstractmethod
    def insert_prefix(self, input_ids, indices): ...

    @abstractmethod
    def lock_handle(self, handle, unlock=False): ...

    @abstractmethod
    def evict(self, size): ...

    @abstractmethod
    def reset(self): ...

    @property
    @abstractmethod
    def size_info(self): ...

    @abstractmethod
    def check_integrity(self): ...
