"""SGLang's tables and allocators of slots, under SGLang's names. Slot 0 (or page 0) and row 0 are nobody's: padding goes there.

Freeing what is not taken raises stemma.InvalidArgumentError, always: a slot with two owners would serve one user's
tokens to another.
"""

from __future__ import annotations

import torch

from .errors import InvalidArgumentError


def request_part(req, name: str):
    """What has the field `name` of a request: its `kv`, as in newer SGLangs, or the request itself."""
    kv = getattr(req, "kv", None)
    return kv if hasattr(kv, name) else req


def _row_of(req) -> int | None:
    return getattr(request_part(req, "req_pool_idx"), "req_pool_idx", None)


class ReqToTokenPool:
    """A row of slots for each running request, 1 ... size: `req_to_token`, int32 [size + 1, max_context_len].

    Row 0 is what a batch is filled up with that replays a graph of more requests, which then writes there.
    """

    def __init__(self, size: int, max_context_len: int, device: str = "cpu", enable_memory_saver: bool = False):
        self.size, self.max_context_len, self.device = size, max_context_len, device
        self.req_to_token = torch.zeros((size + 1, max_context_len), dtype=torch.int32, device=device)
        self.clear()

    def write(self, indices, values) -> None:
        self.req_to_token[indices] = values

    def available_size(self) -> int:
        return len(self.free_slots)

    def alloc(self, reqs) -> list[int] | None:
        """Rows for `reqs`: a number, or requests, of which those with a row keep it. All or none."""
        if isinstance(reqs, int):
            return self._take(reqs)
        new = [req for req in reqs if _row_of(req) is None]
        if len({id(req) for req in new}) != len(new):
            raise InvalidArgumentError("a request without a row is there twice")
        for req in reqs:
            committed = getattr(request_part(req, "kv_committed_len"), "kv_committed_len", 1)
            if _row_of(req) is not None and committed <= 0:
                raise InvalidArgumentError("a request that keeps its row has committed tokens")
        rows = self._take(len(new))
        if rows is None:
            return None
        for req, row in zip(new, rows):
            request_part(req, "req_pool_idx").req_pool_idx = row
        return [_row_of(req) for req in reqs]

    def _take(self, count: int) -> list[int] | None:
        if count > len(self.free_slots):
            return None
        cut = len(self.free_slots) - count
        rows, self.free_slots = self.free_slots[cut:][::-1], self.free_slots[:cut]
        return rows

    def free(self, rows) -> None:
        """Gives back a row, several, or that of a request. All or none."""
        part = request_part(rows, "req_pool_idx")
        if hasattr(part, "req_pool_idx"):
            if part.req_pool_idx is None:
                raise InvalidArgumentError("the request has no row")
            self.free(part.req_pool_idx)
            part.req_pool_idx = None
            return
        given = [rows] if isinstance(rows, int) else [int(row) for row in rows]
        free = set(self.free_slots)
        for row in given:
            if row in free or not 1 <= row <= self.size:
                raise InvalidArgumentError(f"row {row} is not taken")
            free.add(row)
        self.free_slots += given

    def clear(self) -> None:
        self.free_slots = list(range(self.size, 0, -1))


class _Allocator:
    """Units 1 ... n, whole pages or single slots: what both allocators have in common."""

    def __init__(self, size, page_size, dtype, device, kvcache, need_sort):
        self.size, self.page_size, self.dtype = size, page_size, dtype
        self.device, self.need_sort, self._kvcache = device, need_sort, kvcache
        self.clear()

    def clear(self) -> None:
        units = self.size // self.page_size
        self.free_pages = torch.arange(1, units + 1, dtype=torch.int64, device=self.device)
        self.release_pages = self.free_pages[:0]
        self._taken = torch.zeros(units + 1, dtype=torch.bool, device=self.device)
        self._group, self._leaving = None, torch.zeros_like(self._taken)

    def available_size(self) -> int:
        return (len(self.free_pages) + len(self.release_pages)) * self.page_size

    def get_kvcache(self):
        return self._kvcache

    def get_cpu_copy(self, indices):
        return self._kvcache.get_cpu_copy(indices)

    def load_cpu_copy(self, kv_cache_cpu, indices):
        return self._kvcache.load_cpu_copy(kv_cache_cpu, indices)

    def backup_state(self):
        return self.free_pages.clone(), self.release_pages.clone(), self._taken.clone()

    def restore_state(self, state) -> None:
        if self._group is not None:
            raise InvalidArgumentError("a group of frees is open")
        self.free_pages, self.release_pages, self._taken = (part.clone() for part in state)

    def merge_and_sort_free(self) -> None:
        self.free_pages = torch.cat([self.free_pages, self.release_pages]).sort().values
        self.release_pages = self.free_pages[:0]

    def free_group_begin(self) -> None:
        """Frees are checked as they come, kept until the end of the group, then made as one."""
        if self._group is not None:
            raise InvalidArgumentError("free groups do not nest")
        self._group = []

    def free_group_end(self) -> None:
        group, self._group = self._group, None
        if group:
            self._give_back(self._units_of(torch.cat(group)))

    def _take_units(self, count: int):
        if count < 0:
            raise InvalidArgumentError(f"{count} units are wanted")
        if self.need_sort and count > len(self.free_pages):
            self.merge_and_sort_free()
        if count > len(self.free_pages):
            return None
        units, self.free_pages = self.free_pages[:count], self.free_pages[count:]
        self._taken[units] = True
        return units

    def free(self, free_index: torch.Tensor) -> None:
        """Gives slots back; with any slot of a page, the page."""
        if free_index.numel() == 0:
            return
        slots = free_index.to(torch.int64)
        if bool(((slots < self.page_size) | (slots >= len(self._taken) * self.page_size)).any()):
            raise InvalidArgumentError("free: a slot is none of this pool")
        units = self._units_of(slots)
        gone = ~self._taken[units]
        if self._group is not None and self.page_size == 1:  # of a page other slots may have been in the group
            gone |= self._leaving[units]
        if bool(gone.any()):
            raise InvalidArgumentError("free: a slot is not taken, or is freed twice")
        if self._group is None:
            self._give_back(units)
            return
        self._leaving[units] = True
        self._group.append(slots)

    def _give_back(self, units) -> None:
        self._taken[units] = False
        self._leaving[units] = False
        if self.need_sort:
            self.release_pages = torch.cat([self.release_pages, units])
        else:
            self.free_pages = torch.cat([units, self.free_pages])


class TokenToKVPoolAllocator(_Allocator):
    """Single slots, 1 ... size."""

    def __init__(self, size, dtype=torch.float16, device="cpu", kvcache=None, need_sort=False):
        super().__init__(size, 1, dtype, device, kvcache, need_sort)

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """int64 [need_size] slots; None if fewer are free."""
        return self._take_units(need_size)

    def _units_of(self, slots):
        if len(slots.unique()) != len(slots):
            raise InvalidArgumentError("free: a slot is freed twice")
        return slots


_EXTEND = ("prefix_lens", "prefix_lens_cpu", "seq_lens", "seq_lens_cpu", "last_loc", "extend_num_tokens")
_DECODE = ("seq_lens", "seq_lens_cpu", "last_loc")


def _named(call: str, names: tuple, given: tuple, named: dict) -> dict:
    """Arguments by their names, lengths as they are on the CPU where they are said to be. num_new_pages is counted here."""
    named.pop("num_new_pages", None)
    first_names = tuple(name for name in names if not name.endswith("_cpu"))
    is_first = len(given) + len(named) == len(first_names)
    wanted = {**dict(zip(first_names if is_first else names, given)), **named}
    if len(given) > len(names) + 1 or not set(first_names) <= wanted.keys() <= set(names):
        raise TypeError(f"{call}: {', '.join(names)} are wanted")
    return {name: wanted.get(f"{name}_cpu", wanted[name]) for name in first_names}


class PagedTokenToKVPoolAllocator(_Allocator):
    """Whole pages, 1 ... size / page_size. A slot is page x page_size + offset."""

    def __init__(self, size, page_size, dtype=torch.float16, device="cpu", kvcache=None, need_sort=False):
        super().__init__(size, page_size, dtype, device, kvcache, need_sort)

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """int64 [need_size] slots of whole pages; None if fewer are free."""
        if need_size % self.page_size != 0:
            raise InvalidArgumentError(f"alloc: {need_size} is not a multiple of page_size {self.page_size}")
        pages = self._take_units(need_size // self.page_size)
        if pages is None:
            return None
        return (pages[:, None] * self.page_size + torch.arange(self.page_size, device=self.device)).flatten()

    def alloc_extend(self, *given, **named) -> torch.Tensor | None:
        """Slots for tokens prefix_lens[i] ... seq_lens[i]-1 of each request, whose last slot so far is last_loc[i].

        The rest of the last page is filled first, then new pages. All or none.
        Of (prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, last_loc, extend_num_tokens, num_new_pages=None), as SGLang has
        it, or without what is on the CPU, as in its first versions.
        """
        wanted = _named("alloc_extend", _EXTEND, given, named)
        prefixes, ends = (wanted[name].tolist() for name in ("prefix_lens", "seq_lens"))
        return self._extend(prefixes, ends, wanted["last_loc"].tolist(), wanted["extend_num_tokens"])

    def alloc_decode(self, *given, **named) -> torch.Tensor | None:
        """One slot for the last token of each request: behind its last slot, or at the start of a new page.

        Of (seq_lens, seq_lens_cpu, last_loc), or without what is on the CPU, as in SGLang's first versions.
        """
        wanted = _named("alloc_decode", _DECODE, given, named)
        ends = wanted["seq_lens"].tolist()
        return self._extend([end - 1 for end in ends], ends, wanted["last_loc"].tolist(), len(ends))

    def _extend(self, prefixes, ends, lasts, extend_num_tokens: int) -> torch.Tensor | None:
        size = self.page_size
        counts = [-(-end // size) - -(-prefix // size) for prefix, end in zip(prefixes, ends)]
        if any(prefix % size != (last + 1) % size for prefix, last in zip(prefixes, lasts)):
            raise InvalidArgumentError("alloc_extend: a last_loc is not where its prefix ends")
        tokens = [end - prefix for prefix, end in zip(prefixes, ends)]
        if any(count < 0 for count in tokens) or sum(tokens) != extend_num_tokens:
            raise InvalidArgumentError(f"alloc_extend: {tokens} tokens, and not {extend_num_tokens} in all")
        pages = self._take_units(sum(counts))
        if pages is None:
            return None
        parts, at = [], 0
        for prefix, end, last, count in zip(prefixes, ends, lasts, counts):
            filled = min(-prefix % size, end - prefix)
            parts.append(torch.arange(last + 1, last + 1 + filled, dtype=torch.int64, device=self.device))
            whole = (pages[at : at + count, None] * size + torch.arange(size, device=self.device)).flatten()
            parts.append(whole[: end - prefix - filled])
            at += count
        return torch.cat(parts)

    def _units_of(self, slots):
        return (slots // self.page_size).unique()


class HostSlotPool:
    """Slots 0 ... size-1 of host memory, given back lazily: a free keeps a chunk, merged when slots run short."""

    def __init__(self, size: int, page_size: int = 1):
        if size % page_size != 0:
            raise InvalidArgumentError("size: whole pages are wanted")
        self.size, self.page_size = size, page_size
        self.clear()

    def clear(self) -> None:
        self.free_slots = torch.arange(self.size)
        self.release_slots: list[torch.Tensor] = []
        self._taken = torch.zeros(self.size, dtype=torch.bool)

    def available_size(self) -> int:
        return len(self.free_slots) + sum(len(chunk) for chunk in self.release_slots)

    def _check(self, count: int) -> None:
        if count < 0 or count % self.page_size != 0:
            raise InvalidArgumentError(f"{count} slots are no whole pages of {self.page_size}")

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """int64 [need_size] slots; None if fewer are free."""
        self._check(need_size)
        if need_size > self.available_size():
            return None
        if need_size > len(self.free_slots):
            self.free_slots = torch.cat([self.free_slots, *self.release_slots])
            self.release_slots = []
        slots, self.free_slots = self.free_slots[:need_size], self.free_slots[need_size:]
        taken = slots[self._taken[slots]]
        if len(taken) > 0:
            raise InvalidArgumentError(f"Double-alloc: slot {taken[0].item()}")
        self._taken[slots] = True
        return slots

    def free(self, indices: torch.Tensor) -> int:
        self._check(len(indices))
        if len(indices) == 0:
            return 0
        if bool(((indices < 0) | (indices >= len(self._taken))).any()):
            raise InvalidArgumentError("free: a slot is none of this pool")
        free = indices[~self._taken[indices]]
        if len(free) > 0:
            raise InvalidArgumentError(f"Double-free: slot {free[0].item()}")
        if len(indices.unique()) != len(indices):
            raise InvalidArgumentError("Double-free: a slot twice in one call")
        self._taken[indices] = False
        self.release_slots.append(indices.clone())
        return len(indices)


def kv_to_page_indices(kv_indices: torch.Tensor, page_size: int) -> torch.Tensor:
    """The pages of slots that lie page by page."""
    return kv_indices[::page_size] // page_size


def kv_to_page_num(num_kv_indices: int, page_size: int) -> int:
    return -(-num_kv_indices // page_size)


def page_align_floor(length: int, page_size: int) -> int:
    return length // page_size * page_size
