"""The scheduler's side of a cache: free pages, named by their first slots, and what it evicts when they are short."""

import torch

from minisgl.kvcache import create_prefix_cache


class CacheManager:
    def __init__(self, num_pages, page_size, page_table, type):
        self._num_pages, self._page_size = num_pages, page_size
        self._free_slots = torch.arange(0, num_pages * page_size, page_size, dtype=torch.int32)
        self._prefix_cache = create_prefix_cache(page_table.device, type)

    def _allocate(self, pages):
        missing = pages - len(self._free_slots)
        if missing > 0:
            self._free(self._prefix_cache.evict(missing * self._page_size))
        taken, self._free_slots = self._free_slots[:pages], self._free_slots[pages:]
        return taken

    def _free(self, slots):
        self._free_slots = torch.cat([self._free_slots, slots[:: self._page_size]])

    def _page_to_token(self, pages):
        return (pages[:, None] + torch.arange(self._page_size, dtype=torch.int32)).flatten()

    def cache_text(self, tokens, slots, old_handle, finished):
        """What its cache_req does with a request's tokens: the handle that the request has from now on."""
        cached_len, new_handle = self._prefix_cache.insert_prefix(tokens, slots)
        self._prefix_cache.lock_handle(old_handle, unlock=True)
        self._free(slots[old_handle.cached_len : cached_len])
        if finished:
            self._free(slots[new_handle.cached_len :])
        else:
            self._prefix_cache.lock_handle(new_handle)
        return new_handle

    def check_integrity(self):
        self._prefix_cache.check_integrity()
        cached = self._prefix_cache.size_info.total_size // self._page_size
        assert len(self._free_slots) + cached == self._num_pages
