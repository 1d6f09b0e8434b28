"""SGLang's tables and allocators under stemma: what each call gives, takes and refuses."""

import types

import pytest

torch = pytest.importorskip("torch")

import stemma  # noqa: E402
from stemma.compat_sglang import (  # noqa: E402
    HostSlotPool,
    PagedTokenToKVPoolAllocator,
    ReqToTokenPool,
    TokenToKVPoolAllocator,
    kv_to_page_indices,
    kv_to_page_num,
    page_align_floor,
)


def longs(*numbers):
    return torch.tensor(numbers, dtype=torch.int64)


# Single slots.


def test_slots_are_unique_and_counted():
    allocator = TokenToKVPoolAllocator(16)
    slots = allocator.alloc(4)
    assert len(set(slots.tolist())) == 4 and allocator.available_size() == 12


def test_slot_0_is_nobodys():
    assert 0 not in TokenToKVPoolAllocator(16).alloc(16).tolist()
    assert min(PagedTokenToKVPoolAllocator(64, 4).alloc(64).tolist()) == 4


@pytest.mark.parametrize("need_sort", [False, True])
def test_more_than_there_is_gives_none(need_sort):
    allocator = TokenToKVPoolAllocator(8, need_sort=need_sort)
    assert allocator.alloc(9) is None
    assert allocator.available_size() == 8 and len(allocator.alloc(8)) == 8
    assert allocator.available_size() == 0


def test_no_slots_change_nothing():
    allocator = TokenToKVPoolAllocator(16)
    assert allocator.alloc(0).tolist() == []
    allocator.free(longs())
    assert allocator.available_size() == 16


def test_allocations_are_disjoint():
    allocator = TokenToKVPoolAllocator(16)
    assert set(allocator.alloc(8).tolist()).isdisjoint(allocator.alloc(8).tolist())


def test_with_sorting_freed_slots_wait_until_they_are_needed():
    allocator = TokenToKVPoolAllocator(8, need_sort=True)
    allocator.free(allocator.alloc(8)[:4])
    assert len(allocator.release_pages) == 4 and len(allocator.free_pages) == 0
    assert allocator.available_size() == 4
    assert sorted(allocator.alloc(4).tolist()) == [1, 2, 3, 4]


def test_without_sorting_freed_slots_are_free_at_once():
    allocator = TokenToKVPoolAllocator(8)
    allocator.free(allocator.alloc(4))
    assert len(allocator.free_pages) == 8 and len(allocator.release_pages) == 0


def test_merging_sorts():
    allocator = TokenToKVPoolAllocator(6)
    allocator.free_pages, allocator.release_pages = longs(6, 5), longs(3, 1, 2)
    allocator.merge_and_sort_free()
    assert allocator.free_pages.tolist() == [1, 2, 3, 5, 6] and len(allocator.release_pages) == 0


@pytest.mark.parametrize("make", [lambda: TokenToKVPoolAllocator(16), lambda: PagedTokenToKVPoolAllocator(16, 4)])
def test_a_state_is_a_snapshot(make):
    allocator = make()
    state = allocator.backup_state()
    slots = allocator.alloc(8)
    allocator.restore_state(state)
    assert allocator.available_size() == 16
    slots = allocator.alloc(16)
    state = allocator.backup_state()
    allocator.free(slots)
    allocator.restore_state(state)
    assert allocator.available_size() == 0


def test_a_group_of_frees_is_one_free_at_its_end():
    allocator = TokenToKVPoolAllocator(16)
    slots = allocator.alloc(8)
    allocator.free_group_begin()
    allocator.free(slots[:4])
    allocator.free(slots[4:])
    assert allocator.available_size() == 8
    allocator.free_group_end()
    assert allocator.available_size() == 16
    allocator.free_group_begin()
    allocator.free_group_end()
    assert allocator.available_size() == 16


@pytest.mark.parametrize("wrong", [(9,), (1,), (8, 8), (99,)], ids=["free", "in the group", "twice", "no slot"])
def test_a_wrong_slot_in_a_group_is_refused_alone(wrong):
    allocator = TokenToKVPoolAllocator(16)
    slots = allocator.alloc(8)
    allocator.free_group_begin()
    allocator.free(slots[:4])
    with pytest.raises(stemma.InvalidArgumentError):
        allocator.free(longs(*wrong))
    allocator.free(slots[4:])
    allocator.free_group_end()
    assert allocator.available_size() == 16
    assert sorted(allocator.alloc(16).tolist()) == list(range(1, 17))


def test_slots_of_one_page_may_be_freed_one_by_one_in_a_group():
    allocator = PagedTokenToKVPoolAllocator(16, 4)
    slots = allocator.alloc(8)
    allocator.free_group_begin()
    for slot in slots:
        allocator.free(slot[None])
    allocator.free_group_end()
    assert allocator.available_size() == 16
    assert sorted(allocator.alloc(16).tolist()) == list(range(4, 20))


def test_no_state_is_restored_in_a_group():
    allocator = TokenToKVPoolAllocator(16)
    state = allocator.backup_state()
    allocator.free_group_begin()
    with pytest.raises(stemma.InvalidArgumentError):
        allocator.restore_state(state)


def test_groups_do_not_nest():
    allocator = TokenToKVPoolAllocator(16)
    allocator.free_group_begin()
    with pytest.raises(stemma.InvalidArgumentError):
        allocator.free_group_begin()


@pytest.mark.parametrize("allocator", [TokenToKVPoolAllocator(8), PagedTokenToKVPoolAllocator(8, 4)])
def test_what_is_not_taken_cannot_be_freed(allocator):
    slots = allocator.alloc(4)
    allocator.free(slots)
    with pytest.raises(stemma.InvalidArgumentError, match="freed twice"):
        allocator.free(slots)
    assert allocator.available_size() == 8


@pytest.mark.parametrize("allocator", [TokenToKVPoolAllocator(8), PagedTokenToKVPoolAllocator(8, 4)])
@pytest.mark.parametrize("slot", [-1, 0, 12])
def test_a_slot_of_no_pool_cannot_be_freed(allocator, slot):
    allocator.clear()
    slots = allocator.alloc(8)
    with pytest.raises(stemma.InvalidArgumentError, match="none of this pool"):
        allocator.free(torch.cat([slots, longs(slot)]))
    assert allocator.available_size() == 0


@pytest.mark.parametrize(
    "make",
    [lambda: TokenToKVPoolAllocator(8), lambda: PagedTokenToKVPoolAllocator(8, 4), lambda: HostSlotPool(8)],
)
def test_less_than_no_slots_are_refused(make):
    allocator = make()
    with pytest.raises(stemma.InvalidArgumentError):
        allocator.alloc(-4)
    assert allocator.available_size() == 8


def test_a_slot_twice_in_one_free_is_refused():
    allocator = TokenToKVPoolAllocator(8)
    slots = allocator.alloc(2)
    with pytest.raises(stemma.InvalidArgumentError, match="twice"):
        allocator.free(torch.cat([slots, slots]))
    assert allocator.available_size() == 6


def test_one_free_of_all_is_the_frees_one_by_one():
    batched, one_by_one = TokenToKVPoolAllocator(16, need_sort=True), TokenToKVPoolAllocator(16, need_sort=True)
    slots = batched.alloc(9)
    one_by_one.alloc(9)
    batched.free(torch.cat([slots[:3], slots[3:5], slots[5:]]))
    for part in (slots[:3], slots[3:5], slots[5:]):
        one_by_one.free(part)
    assert batched.release_pages.tolist() == one_by_one.release_pages.tolist()


def test_copies_are_the_kv_caches():
    calls = []
    kv = types.SimpleNamespace(
        get_cpu_copy=lambda slots: calls.append(("get", slots)) or "copy",
        load_cpu_copy=lambda copy, slots: calls.append(("load", copy, slots)),
    )
    allocator = TokenToKVPoolAllocator(8, kvcache=kv)
    assert allocator.get_cpu_copy([1]) == "copy" and allocator.get_kvcache() is kv
    allocator.load_cpu_copy("copy", [2])
    assert calls == [("get", [1]), ("load", "copy", [2])]


# Pages.


def test_pages_are_whole_and_aligned():
    allocator = PagedTokenToKVPoolAllocator(64, 4)
    slots = allocator.alloc(8)
    assert allocator.available_size() == 56
    assert slots[0] % 4 == 0 and slots[4] % 4 == 0 and (slots[1:4] - slots[0]).tolist() == [1, 2, 3]


@pytest.mark.parametrize("need_sort, tokens", [(False, 20), (True, 32)])
def test_more_pages_than_there_are_give_none(need_sort, tokens):
    assert PagedTokenToKVPoolAllocator(16, 4, need_sort=need_sort).alloc(tokens) is None


def test_parts_of_pages_are_not_allocated():
    with pytest.raises(stemma.InvalidArgumentError, match="page_size"):
        PagedTokenToKVPoolAllocator(16, 4).alloc(3)


def test_pages_come_back_whole():
    allocator = PagedTokenToKVPoolAllocator(16, 4)
    slots = allocator.alloc(8)
    allocator.free(slots)
    assert allocator.free_pages.tolist() == [1, 2, 3, 4]
    allocator = PagedTokenToKVPoolAllocator(16, 4, need_sort=True)
    allocator.free(allocator.alloc(8))
    assert allocator.free_pages.tolist() == [3, 4] and allocator.release_pages.tolist() == [1, 2]
    allocator.clear()
    assert allocator.available_size() == 16


def test_a_group_frees_pages():
    allocator = PagedTokenToKVPoolAllocator(32, 4)
    slots = allocator.alloc(16)
    allocator.free_group_begin()
    allocator.free(slots[:8])
    assert allocator.available_size() == 16
    allocator.free(slots[8:])
    allocator.free_group_end()
    assert allocator.available_size() == 32


@pytest.mark.parametrize(
    "prefix, end, last, free, slots",
    [
        (2, 4, 1, [], [2, 3]),
        (0, 8, -1, [5, 6], list(range(20, 28))),
        (4, 7, 3, [3], [12, 13, 14]),
        (2, 8, 1, [3], [2, 3, 12, 13, 14, 15]),
        (2, 7, 1, [3], [2, 3, 12, 13, 14]),
        (4, 11, 3, [2, 3], [8, 9, 10, 11, 12, 13, 14]),
        (2, 11, 1, [3, 4], [2, 3, 12, 13, 14, 15, 16, 17, 18]),
        (4, 4, 3, [], []),
    ],
)
def test_a_request_goes_on_in_its_last_page_then_in_new_ones(prefix, end, last, free, slots):
    allocator = PagedTokenToKVPoolAllocator(64, 4)
    allocator.free_pages = longs(*free)
    given = allocator.alloc_extend(longs(prefix), longs(end), longs(last), end - prefix)
    assert given.tolist() == slots and len(allocator.free_pages) == 0


@pytest.mark.parametrize(
    "prefixes, ends, lasts, free, count",
    [([0, 0], [4, 4], [-1, -1], [1, 2], 8), ([0, 2, 4], [4, 6, 8], [-1, 1, 3], list(range(1, 20)), 12)],
)
def test_requests_extended_together_share_no_slot(prefixes, ends, lasts, free, count):
    allocator = PagedTokenToKVPoolAllocator(128, 4)
    allocator.free_pages = longs(*free)
    slots = allocator.alloc_extend(longs(*prefixes), longs(*ends), longs(*lasts), count).tolist()
    assert len(set(slots)) == len(slots) == count


def test_an_extension_is_all_or_nothing():
    allocator = PagedTokenToKVPoolAllocator(8, 4)
    assert allocator.alloc_extend(longs(0, 0), longs(8, 4), longs(-1, -1), 12) is None
    assert allocator.available_size() == 8
    with pytest.raises(stemma.InvalidArgumentError, match="last_loc"):
        allocator.alloc_extend(longs(2), longs(4), longs(4), 2)
    with pytest.raises(stemma.InvalidArgumentError, match="and not 5 in all"):
        allocator.alloc_extend(longs(0), longs(4), longs(-1), 5)
    assert allocator.available_size() == 8


def test_decoding_begins_a_page_only_where_one_is_full():
    allocator = PagedTokenToKVPoolAllocator(16, 4)
    allocator.alloc(8)
    assert allocator.alloc_decode(longs(6, 5), longs(8, 7)).tolist() == [9, 12]


# SGLang says lengths twice, so that nobody waits for a device; its first versions did not.
@pytest.mark.parametrize(
    "extend, decode",
    [
        (
            lambda slots, begin, end, last: slots.alloc_extend(begin, begin, end, end, last, 9),
            lambda slots, end, last: slots.alloc_decode(end, end, last),
        ),
        (
            lambda slots, begin, end, last: slots.alloc_extend(
                prefix_lens=begin, prefix_lens_cpu=begin, seq_lens=end, seq_lens_cpu=end, last_loc=last, extend_num_tokens=9
            ),
            lambda slots, end, last: slots.alloc_decode(seq_lens=end, seq_lens_cpu=end, last_loc=last),
        ),
        (
            lambda slots, begin, end, last: slots.alloc_extend(begin, begin, end, end, last, 9, num_new_pages=2),
            lambda slots, end, last: slots.alloc_decode(end, end, last_loc=last),
        ),
        (
            lambda slots, begin, end, last: slots.alloc_extend(begin, end, last, 9),
            lambda slots, end, last: slots.alloc_decode(end, last),
        ),
        (
            lambda slots, begin, end, last: slots.alloc_extend(
                prefix_lens=begin, seq_lens=end, last_loc=last, extend_num_tokens=9
            ),
            lambda slots, end, last: slots.alloc_decode(seq_lens=end, last_loc=last),
        ),
    ],
)
def test_it_is_called_as_sglang_calls_it(extend, decode):
    allocator = PagedTokenToKVPoolAllocator(32, 4)
    allocator.alloc(4)
    assert extend(allocator, longs(2), longs(11), longs(5)).tolist() == list(range(6, 15))
    assert decode(allocator, longs(12), longs(14)).tolist() == [15]
    with pytest.raises(TypeError, match="alloc_extend: prefix_lens, "):
        allocator.alloc_extend(longs(2), longs(11))


# Rows.


# As slots: a batch of a graph for more requests is filled up with row 0, and writes there.
def test_row_0_is_nobodys():
    pool = ReqToTokenPool(2, 4)
    rows = pool.alloc(2)
    pool.write(([0, 0], [0, 1]), torch.tensor([7, 8], dtype=torch.int32))
    assert not pool.req_to_token[rows].any() and pool.alloc(1) is None
    pool.clear()
    assert sorted(pool.alloc(2)) == [1, 2]


def test_rows_are_given_and_come_back():
    pool = ReqToTokenPool(8, 4)
    rows = pool.alloc(8)
    assert sorted(rows) == list(range(1, 9)) and pool.available_size() == 0
    for row in rows:
        pool.write((row, slice(0, 4)), torch.tensor([row] * 4, dtype=torch.int32))
    assert pool.req_to_token.tolist() == [[row] * 4 for row in range(9)]
    pool.free(rows[:3])
    again = pool.alloc(3)
    assert sorted(again) == sorted(rows[:3]) and pool.available_size() == 0
    assert pool.alloc(1) is None


def test_requests_with_a_row_keep_it():
    pool = ReqToTokenPool(4, 4)
    requests = [types.SimpleNamespace(req_pool_idx=None, kv_committed_len=0) for _ in range(3)]
    rows = pool.alloc(requests)
    assert [request.req_pool_idx for request in requests] == rows
    for request in requests:
        request.kv_committed_len = 1
    assert pool.alloc(requests) == rows and pool.available_size() == 1
    pool.free(requests[0])
    assert requests[0].req_pool_idx is None and pool.available_size() == 2


def test_rows_are_given_to_all_or_none():
    pool = ReqToTokenPool(4, 4)
    pool.alloc(3)
    requests = [types.SimpleNamespace(req_pool_idx=None) for _ in range(2)]
    assert pool.alloc(requests) is None
    assert requests[0].req_pool_idx is None and pool.available_size() == 1


def test_a_row_that_is_not_taken_is_not_freed():
    pool = ReqToTokenPool(2, 4)
    for row in 0, 1:
        with pytest.raises(stemma.InvalidArgumentError, match=f"row {row}"):
            pool.free(row)


@pytest.mark.parametrize("wrong", [4, 7, 0, 1], ids=["free", "no row", "nobody's", "twice"])
def test_rows_are_freed_all_or_none(wrong):
    pool = ReqToTokenPool(4, 4)
    rows = pool.alloc(3)
    with pytest.raises(stemma.InvalidArgumentError, match=f"row {wrong}"):
        pool.free([1, 2, wrong])
    assert pool.available_size() == 1
    pool.free(rows)
    assert sorted(pool.alloc(4)) == [1, 2, 3, 4]


def test_a_request_whose_row_cannot_be_freed_keeps_it():
    pool = ReqToTokenPool(2, 4)
    request = types.SimpleNamespace(req_pool_idx=1)
    with pytest.raises(stemma.InvalidArgumentError, match="row 1"):
        pool.free(request)
    assert request.req_pool_idx == 1
    request.req_pool_idx = None
    with pytest.raises(stemma.InvalidArgumentError, match="no row"):
        pool.free(request)


def test_a_request_gets_one_row():
    pool = ReqToTokenPool(4, 4)
    request = types.SimpleNamespace(req_pool_idx=None)
    with pytest.raises(stemma.InvalidArgumentError, match="twice"):
        pool.alloc([request, request])
    assert request.req_pool_idx is None and pool.available_size() == 4


# Host memory.


def test_freed_host_slots_wait_in_chunks_until_they_are_needed():
    pool = HostSlotPool(8)
    slots = pool.alloc(6)
    pool.free(slots[:2])
    assert len(pool.free_slots) == 2 and [len(c) for c in pool.release_slots] == [2]
    assert pool.available_size() == 4
    assert pool.alloc(2).tolist() == [6, 7] and len(pool.release_slots) == 1
    assert pool.alloc(2).tolist() == [0, 1] and pool.release_slots == []
    pool.clear()
    assert pool.available_size() == 8
    slots = pool.alloc(8)
    pool.free(slots[0:2])
    pool.free(slots[2:4])
    assert len(pool.release_slots) == 2 and pool.alloc(4).tolist() == [0, 1, 2, 3]


def test_host_slots_have_one_owner():
    pool = HostSlotPool(8)
    slots = pool.alloc(4)
    pool.free(slots[:2])
    with pytest.raises(stemma.InvalidArgumentError, match="Double-free: slot 1"):
        pool.free(slots[1:])
    with pytest.raises(stemma.InvalidArgumentError, match="Double-free"):
        pool.free(longs(7))
    free = pool.available_size()
    with pytest.raises(stemma.InvalidArgumentError, match="twice in one call"):
        pool.free(longs(2, 2))
    for slot in (-1, 8):
        with pytest.raises(stemma.InvalidArgumentError, match="none of this pool"):
            pool.free(longs(slot))
    assert pool.available_size() == free
    pool.clear()
    with pytest.raises(stemma.InvalidArgumentError, match="Double-free"):
        pool.free(slots)
    pool.alloc(2)
    pool.free_slots = longs(1, 2, 3)
    with pytest.raises(stemma.InvalidArgumentError, match="Double-alloc: slot 1"):
        pool.alloc(1)


def test_no_host_slots_leave_no_chunk():
    pool = HostSlotPool(8)
    pool.free(longs())
    assert pool.release_slots == [] and pool.alloc(9) is None


def test_host_slots_come_in_whole_pages():
    pool = HostSlotPool(8, page_size=2)
    with pytest.raises(ValueError):
        pool.alloc(1)
    with pytest.raises(ValueError):
        pool.free(longs(0))


def test_slots_as_pages():
    assert kv_to_page_indices(torch.arange(8), 4).tolist() == [0, 1]
    assert kv_to_page_indices(torch.arange(8, 16), 4).tolist() == [2, 3]
    assert kv_to_page_indices(torch.arange(3), 1).tolist() == [0, 1, 2]
    assert [kv_to_page_num(n, 4) for n in (17, 16, 1, 0)] == [5, 4, 1, 0]
    assert [page_align_floor(n, 4) for n in (17, 16, 15, 3, 0)] == [16, 16, 12, 0, 0]
