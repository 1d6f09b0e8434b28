"""stemma.compat_minisgl keeps mini-SGLang's contract, as its scheduler relies on it."""

import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import stemma  # noqa: E402
from minisgl import core  # noqa: E402
from minisgl.kvcache import SUPPORTED_CACHE_MANAGER  # noqa: E402
from minisgl.scheduler.cache import CacheManager  # noqa: E402
from stemma import compat_minisgl  # noqa: E402


def ids(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def span(first, count):
    return torch.arange(first, first + count, dtype=torch.int32)


@pytest.fixture
def cache():
    made = compat_minisgl.StemmaPrefixCache("cpu", page_size=1)
    yield made
    made.check_integrity()


def test_it_is_registered_under_its_name_with_the_contexts_page_size():
    core.set_global_ctx(core.Context(page_size=8))
    made = SUPPORTED_CACHE_MANAGER["stemma"](torch.device("cpu"))
    core.set_global_ctx(None)
    assert isinstance(made, compat_minisgl.BasePrefixCache) and made.page_size == 8


def test_nothing_matches_in_an_empty_cache(cache):
    handle = cache.match_prefix(span(0, 5)).cuda_handle
    assert handle.cached_len == 0
    assert handle.get_matched_indices().tolist() == []
    cache.lock_handle(handle)
    cache.lock_handle(handle, unlock=True)
    assert cache.size_info == (0, 0)


def test_what_was_inserted_is_matched_with_the_callers_slots(cache):
    result = cache.insert_prefix(span(0, 4), ids(70, 10, 30, 20))
    assert result.cached_len == 0 and result.handle.cached_len == 4
    match = cache.match_prefix(ids(0, 1, 2, 9)).cuda_handle
    indices = match.get_matched_indices()
    assert match.cached_len == 3 and indices.tolist() == [70, 10, 30] and indices.dtype == torch.int32


def test_slots_are_copied(cache):
    slots = span(0, 4)
    cache.insert_prefix(span(0, 4), slots)
    slots.fill_(99)
    assert cache.match_prefix(span(0, 4)).cuda_handle.get_matched_indices().tolist() == [0, 1, 2, 3]


def test_slots_of_what_was_there_stay_the_callers(cache):
    cache.insert_prefix(span(0, 3), ids(10, 11, 12))
    result = cache.insert_prefix(span(0, 5), ids(20, 21, 22, 23, 24))
    assert result.cached_len == 3
    assert result.handle.get_matched_indices().tolist() == [10, 11, 12, 23, 24]
    assert cache.size_info == (5, 0)


def test_whole_pages_are_inserted_and_matched():
    cache = compat_minisgl.StemmaPrefixCache("cpu", page_size=4)
    result = cache.insert_prefix(span(0, 11), span(40, 11))
    assert result.handle.cached_len == 8 and cache.size_info.total_size == 8
    assert cache.match_prefix(span(0, 7)).cuda_handle.cached_len == 4
    assert cache.match_prefix(span(0, 3)).cuda_handle.cached_len == 0


def test_an_unlocked_handle_is_evictable_and_a_locked_one_is_not(cache):
    cache.insert_prefix(span(0, 4), span(0, 4))
    handle = cache.match_prefix(span(0, 4)).cuda_handle
    assert cache.size_info == (4, 0)
    cache.lock_handle(handle)
    assert cache.size_info == (0, 4)
    with pytest.raises(RuntimeError):
        cache.evict(1)
    cache.lock_handle(handle, unlock=True)
    assert sorted(cache.evict(4).tolist()) == [0, 1, 2, 3]


def test_locks_are_counted(cache):
    handle = cache.insert_prefix(span(0, 4), span(0, 4)).handle
    cache.lock_handle(handle)
    cache.lock_handle(handle)
    cache.lock_handle(handle, unlock=True)
    assert cache.size_info == (0, 4)
    cache.lock_handle(handle, unlock=True)
    assert cache.size_info == (4, 0)
    with pytest.raises(stemma.InvalidArgumentError, match="not locked"):
        cache.lock_handle(handle, unlock=True)


def test_two_handles_of_one_prefix_lock_on_their_own(cache):
    cache.insert_prefix(span(0, 4), span(0, 4))
    one, other = (cache.match_prefix(span(0, 4)).cuda_handle for _ in range(2))
    cache.lock_handle(one)
    cache.lock_handle(other)
    cache.lock_handle(one, unlock=True)
    assert cache.size_info == (0, 4)
    cache.lock_handle(other, unlock=True)
    assert cache.size_info == (4, 0)


def test_a_lock_lasts_longer_than_later_splits(cache):
    handle = cache.insert_prefix(span(0, 8), span(0, 8)).handle
    cache.lock_handle(handle)
    cache.insert_prefix(ids(0, 1, 2, 50, 51), span(10, 5))
    cache.insert_prefix(ids(0, 60), span(20, 2))
    assert handle.get_matched_indices().tolist() == list(range(8))
    assert cache.size_info.protected_size == 8
    cache.lock_handle(handle, unlock=True)
    assert cache.size_info == (11, 0)


def test_an_unlocked_handle_lasts_longer_than_later_splits(cache):
    handle = cache.insert_prefix(span(0, 8), span(0, 8)).handle
    cache.insert_prefix(ids(0, 1, 2, 50, 51), span(10, 5))
    assert handle.get_matched_indices().tolist() == list(range(8))
    cache.lock_handle(handle)
    assert cache.size_info.protected_size == 8


def test_a_handle_of_what_was_evicted_is_stale(cache):
    handle = cache.insert_prefix(span(0, 8), span(0, 8)).handle
    cache.evict(1)
    with pytest.raises(stemma.NotFoundError, match="stale"):
        cache.lock_handle(handle)
    with pytest.raises(stemma.NotFoundError, match="stale"):
        handle.get_matched_indices()
    assert cache.size_info == (7, 0)


def test_the_coldest_goes_first(cache):
    for first in (0, 100, 200):
        cache.insert_prefix(span(first, 2), span(first, 2))
    cache.match_prefix(span(0, 2))
    assert sorted(cache.evict(2).tolist()) == [100, 101]
    assert sorted(cache.evict(2).tolist()) == [200, 201]


def test_a_prefix_goes_after_what_goes_on_from_it(cache):
    cache.insert_prefix(ids(1, 2, 3), ids(1, 2, 3))
    cache.insert_prefix(ids(1, 2, 4), ids(1, 2, 4))
    assert set(cache.evict(2).tolist()) == {3, 4}
    assert set(cache.evict(2).tolist()) == {1, 2}


def test_evicting_nothing_is_legal(cache):
    assert cache.evict(0).tolist() == []


def test_more_than_is_evictable_raises_and_evicts_nothing(cache):
    cache.insert_prefix(span(0, 4), span(0, 4))
    with pytest.raises(RuntimeError, match="5 tokens are wanted and 4 are evictable"):
        cache.evict(5)
    assert cache.size_info == (4, 0)


def test_reset_forgets_all_that_nobody_locks(cache):
    handle = cache.insert_prefix(span(0, 4), span(0, 4)).handle
    cache.lock_handle(handle)
    with pytest.raises(stemma.InvalidArgumentError, match="locked"):
        cache.reset()
    cache.lock_handle(handle, unlock=True)
    cache.reset()
    assert cache.size_info == (0, 0)
    assert cache.match_prefix(span(0, 4)).cuda_handle.cached_len == 0


def test_handles_that_python_drops_hold_nothing(cache):
    cache.lock_handle(cache.insert_prefix(span(0, 4), span(0, 4)).handle)
    assert cache.size_info == (4, 0)


# It evicts when its own pages are short, which they are not while the pool is larger than the cache.
def test_a_cache_holds_as_much_as_the_pool(monkeypatch):
    monkeypatch.setattr(compat_minisgl, "PAGES_MAX", 2)
    sizes = {"num_kv_heads": 1, "num_layers": 1, "head_dim": 1, "dtype": torch.float16, "device": "cpu"}
    context = core.Context(page_size=4)
    context.kv_cache = compat_minisgl.StemmaKVCachePool(num_pages=8, page_size=4, **sizes)
    core.set_global_ctx(context)
    made = SUPPORTED_CACHE_MANAGER["stemma"](torch.device("cpu"))
    core.set_global_ctx(None)
    assert made.insert_prefix(span(0, 32), span(0, 32)).handle.cached_len == 32


def test_a_cache_that_is_full_keeps_nothing_new_and_says_so_once(caplog):
    cache = compat_minisgl.StemmaPrefixCache("cpu", page_size=2, tokens_max=4)
    cache.insert_prefix(span(0, 2), span(0, 2))
    for _ in range(2):
        result = cache.insert_prefix(span(0, 7), span(10, 7))
        assert result.cached_len == result.handle.cached_len == 2
        assert result.handle.get_matched_indices().tolist() == [0, 1]
    assert cache.size_info == (2, 0)
    assert ["tokens_max" in record.message for record in caplog.records] == [True]


def test_the_first_versions_names_give_pairs_and_numbers():
    cache = compat_minisgl.RadixCacheManager("cpu")
    assert cache.insert_prefix(span(0, 4), span(0, 4)) == 0
    assert cache.insert_prefix(span(0, 6), span(0, 6)) == 4
    handle, indices = cache.match_prefix(span(0, 5))
    assert handle.cached_len == 5 and indices.tolist() == [0, 1, 2, 3, 4]


# It says only up to where slots are the caller's to free.
def test_the_first_versions_insert_leaves_all_to_the_caller_where_there_is_no_room():
    cache = compat_minisgl.RadixCacheManager("cpu", tokens_max=4)
    assert cache.insert_prefix(span(0, 2), span(0, 2)) == 0
    assert cache.insert_prefix(span(0, 6), span(10, 6)) == 6
    assert cache.size_info == (2, 0)


def test_the_naive_cache_keeps_nothing():
    cache = compat_minisgl.NaiveCacheManager("cpu")
    assert cache.insert_prefix(span(0, 4), span(0, 4)) == 4
    handle, indices = cache.match_prefix(span(0, 4))
    assert handle.cached_len == 0 and indices.tolist() == handle.get_matched_indices().tolist() == []
    cache.lock_handle(handle)
    assert cache.size_info.total_size == 0 and cache.evict(0).tolist() == []
    with pytest.raises(RuntimeError):
        cache.evict(1)


# The scheduler over the cache, pages of several tokens.


@pytest.fixture
def scheduler(request):
    pages, page_size, cached_pages = request.param
    core.set_global_ctx(core.Context(page_size=page_size))
    made = CacheManager(pages, page_size, torch.empty(1), type="radix")
    core.set_global_ctx(None)
    if cached_pages > 0:
        made._allocate(pages)
        made._prefix_cache.insert_prefix(span(0, cached_pages * page_size), span(0, cached_pages * page_size))
    return made


@pytest.mark.parametrize("scheduler", [(4, 4, 2)], indirect=True)
def test_a_page_that_was_evicted_begins_at_a_page(scheduler):
    page = scheduler._allocate(1)
    assert len(page) == 1 and page.item() in (0, 4)
    assert all(slot % 4 == 0 for slot in scheduler._free_slots.tolist())


@pytest.mark.parametrize("scheduler", [(4, 4, 2)], indirect=True)
def test_pages_that_were_evicted_one_by_one_are_different(scheduler):
    pages = [scheduler._allocate(1).item(), scheduler._allocate(1).item()]
    assert sorted(pages) == [0, 4]


@pytest.mark.parametrize("scheduler", [(8, 8, 4)], indirect=True)
def test_one_page_is_evicted_where_one_is_short(scheduler):
    scheduler._allocate(1)
    assert scheduler._free_slots.tolist() == []
    assert scheduler._prefix_cache.size_info.total_size == 24


@pytest.mark.parametrize("scheduler", [(4, 4, 3)], indirect=True)
def test_as_many_pages_come_as_are_wanted(scheduler):
    pages = scheduler._allocate(2).tolist()
    assert len(set(pages)) == 2 and all(page % 4 == 0 for page in pages)


@pytest.mark.parametrize("scheduler", [(4, 4, 2)], indirect=True)
def test_evicted_pages_become_runs_of_slots(scheduler):
    pages = scheduler._allocate(2)
    slots = scheduler._page_to_token(pages).tolist()
    assert slots == [page + offset for page in pages.tolist() for offset in range(4)]


@pytest.mark.parametrize("scheduler", [(8, 4, 0)], indirect=True)
def test_no_page_is_lost_over_a_cycle(scheduler):
    slots = scheduler._page_to_token(scheduler._allocate(2))
    scheduler._prefix_cache.insert_prefix(span(0, 8), slots)
    scheduler.check_integrity()
    scheduler._allocate(6)
    assert len(scheduler._free_slots) == 0
    page = scheduler._allocate(1)
    assert page.item() % 4 == 0 and scheduler._prefix_cache.size_info.total_size == 4


@pytest.mark.parametrize("scheduler", [(8, 4, 0)], indirect=True)
def test_no_page_is_lost_to_a_cache_that_is_full(scheduler):
    scheduler._prefix_cache = cache = compat_minisgl.StemmaPrefixCache("cpu", page_size=4, tokens_max=12)
    texts = []
    for first in (0, 100):
        slots, handle = scheduler._page_to_token(scheduler._allocate(2)), cache.match_prefix(ids()).cuda_handle
        cache.lock_handle(handle)
        texts.append((span(first, 8), slots, scheduler.cache_text(span(first, 8), slots, handle, finished=False)))
    assert [handle.cached_len for _, _, handle in texts] == [8, 0]
    for text in texts:
        scheduler.cache_text(*text, finished=True)
    assert cache.size_info == (8, 0)
    scheduler.check_integrity()


# The pool.


@pytest.mark.parametrize("page_size", [1, 4])
def test_the_pool_gives_back_what_was_stored(page_size):
    pool = compat_minisgl.StemmaKVCachePool(
        num_kv_heads=2, num_layers=3, head_dim=8, num_pages=16, dtype=torch.float16, device="cpu", page_size=page_size
    )
    slots = torch.randperm(16 * page_size, dtype=torch.int32)[:9]
    k, v = torch.randn(9, 2, 8, dtype=torch.float16), torch.randn(9, 16, dtype=torch.float16)
    pool.store_kv(k, v, slots, layer_id=1)
    assert pool.k_cache(1).shape == (16, page_size, 2, 8)
    assert torch.equal(pool.k_cache(1).reshape(-1, 2, 8)[slots.long()], k)
    assert torch.equal(pool.v_cache(1).reshape(-1, 16)[slots.long()], v)
    assert not pool.k_cache(0).any() and not pool.v_cache(2).any()
    assert (pool.device, pool.dtype, pool.num_layers) == (torch.device("cpu"), torch.float16, 3)


# Its schedulers are started by spawn: what the first process imported they do not have.
def test_the_documentations_script_registers_it_in_schedulers_too(tmp_path):
    text = (pathlib.Path(__file__).parents[2] / "docs/PYTHON.md").read_text()
    code = text.split("Such a script does both:")[1].split("```python\n")[1].split("```")[0]
    script = tmp_path / "serve.py"
    script.write_text(code.replace("sglang.launch_server", "minisgl").replace("stemma.compat_sglang", "stemma.compat_minisgl"))
    path = os.pathsep.join([str(pathlib.Path(__file__).parent / "stand_ins"), *sys.path])
    words = [sys.executable, str(script), "--cache-type"]
    ran = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert ran.stdout == "--cache-type stemma\nin a child stemma\n"


def test_mini_sglangs_own_test_passes_with_stemma_as_its_radix_cache():
    checkout = os.environ.get("STEMMA_MINISGL")
    if checkout is None:
        pytest.skip("STEMMA_MINISGL names no checkout of mini-SGLang")
    path = os.pathsep.join([str(pathlib.Path(__file__).parent / "stand_ins"), os.environ["PYTHONPATH"]])
    test = pathlib.Path(checkout) / "tests/core/test_cache_allocate.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", str(test)]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert ran.returncode == 0 and " passed" in ran.stdout, ran.stdout
