"""stemma.Cache and stemma.Sequence: what each verb does, seen from Python."""

import array
import errno
import gc
import pickle
import threading

import numpy
import pytest

import stemma


def text(first, count):
    return numpy.arange(first, first + count, dtype=numpy.int32)


def publish(cache, tokens, namespace=None):
    with cache.begin(tokens, namespace) as sequence:
        assert sequence.reserve(len(tokens))
        sequence.finish(tokens)


@pytest.fixture
def cache():
    opened = stemma.Cache(pages=16, page_size=4, requests_max=3, context_tokens_max=64)
    yield opened
    gc.collect()
    opened.audit()


def test_a_second_prompt_finds_the_full_pages_of_the_first(cache):
    publish(cache, text(0, 18))
    assert cache.probe(text(0, 18)) == 16
    sequence = cache.begin(text(0, 18))
    assert sequence.cached_tokens == 16
    assert sequence.published_tokens == 16
    assert sequence.capacity_tokens == 16


def test_one_token_is_always_computed(cache):
    publish(cache, text(0, 12))
    assert cache.probe(text(0, 12)) == 8
    assert cache.probe(text(0, 13)) == 12


def test_only_what_was_committed_is_found(cache):
    sequence = cache.begin(text(0, 20))
    assert sequence.reserve(20)
    sequence.commit(text(0, 7))
    assert cache.probe(text(0, 20)) == 4
    sequence.close()
    assert cache.stats()["cached_tokens"] == 4


def test_equal_prompts_computed_together_end_on_the_same_pages(cache):
    first, second = cache.begin(text(0, 8)), cache.begin(text(0, 8))
    assert first.reserve(8) and second.reserve(8)
    assert set(first.pages.tolist()).isdisjoint(second.pages.tolist())
    first.commit(text(0, 8))
    second.commit(text(0, 8))
    assert first.pages.tolist() == second.pages.tolist()


def test_pages_are_read_where_they_lie(cache):
    sequence = cache.begin(text(0, 12))
    assert sequence.reserve(12)
    pages = sequence.pages
    view = numpy.asarray(pages)
    assert view.dtype == numpy.int32 and view.shape == (3,)
    assert not view.flags.owndata and not view.flags.writeable
    assert view.tolist() == list(pages) == pages.tolist()
    assert pages[-1] == view[2]
    with pytest.raises(IndexError):
        pages[3]


def test_a_page_list_outlives_its_sequence_and_cache():
    cache = stemma.Cache(pages=4, page_size=4)
    sequence = cache.begin(text(0, 8))
    assert sequence.reserve(8)
    view = numpy.asarray(sequence.pages)
    del sequence, cache
    gc.collect()
    assert view.shape == (2,)


def test_reserve_is_all_or_nothing_and_evicts_what_is_missing(cache):
    publish(cache, text(0, 48))
    sequence = cache.begin(text(500, 20))
    assert sequence.reserve(20)
    assert cache.stats()["evicted_pages"] == 1
    other = cache.begin(text(900, 60))
    assert not other.reserve(60)
    assert other.capacity_tokens == 0


def test_evict_frees_the_coldest_that_nobody_holds(cache):
    publish(cache, text(0, 8))
    publish(cache, text(100, 8))
    held = cache.begin(text(100, 9))
    assert cache.evict(1) == 1
    assert cache.probe(text(0, 9)) == 4
    assert cache.evict(100) == 1
    assert held.cached_tokens == 8 and cache.probe(text(100, 9)) == 8


@pytest.mark.parametrize(
    "tokens",
    [
        list(range(9)),
        tuple(range(9)),
        range(9),
        array.array("i", range(9)),
        array.array("q", range(9)),
        numpy.arange(9, dtype=numpy.int64),
        numpy.arange(18, dtype=numpy.int32)[:9],
        numpy.repeat(numpy.arange(9, dtype=numpy.int32), 2)[::2],
        memoryview(numpy.arange(9, dtype=numpy.int32)),
    ],
)
def test_tokens_come_in_any_array_of_whole_numbers(cache, tokens):
    publish(cache, text(0, 9))
    assert cache.probe(tokens) == 8


def test_tokens_come_from_torch(cache):
    torch = pytest.importorskip("torch")
    publish(cache, text(0, 9))
    assert cache.probe(torch.arange(9, dtype=torch.int32)) == 8
    assert cache.probe(torch.arange(9)) == 8
    assert cache.probe(torch.arange(18)[::2]) == 0


@pytest.mark.parametrize(
    "tokens", [[], [2**31], numpy.array([2**40]), numpy.zeros((2, 2), numpy.int32), numpy.ones(3), 5]
)
def test_what_is_no_text_is_refused(cache, tokens):
    with pytest.raises(stemma.InvalidArgumentError, match="^tokens: "):
        cache.begin(tokens)


def test_namespaces_share_nothing(cache):
    ours, theirs = cache.namespace(tenant="a"), cache.namespace(tenant="b")
    publish(cache, text(0, 9), ours)
    assert cache.probe(text(0, 9), ours) == 8
    assert cache.probe(text(0, 9), theirs) == 0
    assert cache.probe(text(0, 9)) == 0
    assert cache.namespace(tenant="a").digest == ours.digest != theirs.digest
    assert len(ours.digest) == 32


def test_the_fields_of_a_namespace_cannot_be_confused(cache):
    digests = [
        cache.namespace(a="bc", b="a").digest,
        cache.namespace(a="c", b="ab").digest,
        cache.namespace(a="1").digest,
        cache.namespace(a=1).digest,
        cache.namespace(a=b"1").digest,
        cache.namespace().digest,
    ]
    assert len(set(digests)) == len(digests)
    assert cache.namespace(b=1, a=2).digest == cache.namespace(a=2, b=1).digest


def test_what_a_namespace_cached_outlives_it(cache):
    publish(cache, text(0, 9), cache.namespace(tenant="a"))
    gc.collect()
    assert cache.probe(text(0, 9), cache.namespace(tenant="a")) == 8


def test_a_namespace_of_another_cache_is_refused(cache):
    other = stemma.Cache(pages=4).namespace()
    with pytest.raises(stemma.InvalidArgumentError, match="another Cache"):
        cache.probe([1], other)


def test_rows_are_bounded_and_come_back(cache):
    held = [cache.begin([1]) for _ in range(3)]
    assert cache.begin([1]) is None
    held.pop().close()
    assert cache.begin([1]) is not None


def test_what_a_sequence_cannot_do_is_refused(cache):
    sequence = cache.begin(text(0, 4))
    with pytest.raises(stemma.InvalidArgumentError, match="reserve made room for 0"):
        sequence.commit(text(0, 4))
    with pytest.raises(stemma.TooLargeError, match="context_tokens_max"):
        sequence.reserve(65)
    sequence.close()
    sequence.close()
    assert not sequence.valid
    for use in (lambda: sequence.reserve(1), lambda: sequence.pages, lambda: sequence.finish([])):
        with pytest.raises(stemma.InvalidArgumentError, match="holds nothing"):
            use()


def test_reset_forgets_all_once_nobody_holds_anything(cache):
    publish(cache, text(0, 9))
    held = cache.begin(text(0, 9))
    with pytest.raises(stemma.InvalidArgumentError, match="still holds"):
        cache.reset()
    held.close()
    cache.reset()
    assert cache.stats()["cached_tokens"] == 0 and cache.stats()["free_pages"] == 16


def test_a_wrong_option_is_named():
    with pytest.raises(stemma.InvalidArgumentError, match="page_size"):
        stemma.Cache(pages=4, page_size=0)
    with pytest.raises(stemma.NotFoundError, match="lru"):
        stemma.Cache(pages=4, eviction="no such order")
    with pytest.raises(stemma.Error) as raised:
        stemma.Cache(pages=0)
    assert raised.value.code == "invalid_argument"


def test_errors_are_of_pythons_own_kinds_too():
    assert issubclass(stemma.InvalidArgumentError, ValueError)
    assert issubclass(stemma.NotFoundError, LookupError)
    assert issubclass(stemma.IoError, OSError)
    assert issubclass(stemma.DeadlineError, TimeoutError)
    error = stemma.errors.error_of("io", "cannot be read", 5)
    assert isinstance(error, stemma.Error) and error.sys_errno == 5 and "cannot be read" in str(error)


@pytest.mark.parametrize("code", ["io", "deadline", "out_of_memory"])
def test_errors_of_the_system_say_what_it_said(code):
    error = stemma.errors.error_of(code, "DIR/0.slab: cannot be read", errno.ENOSPC)
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert str(one) == "DIR/0.slab: cannot be read (No space left on device)" and one.sys_errno == errno.ENOSPC
        if isinstance(one, OSError):
            assert (one.errno, one.strerror) == (errno.ENOSPC, "No space left on device")
    silent = stemma.errors.error_of("io", "cut off")
    assert str(silent) == "cut off" and silent.errno is silent.strerror is None


def test_what_cannot_be_opened_says_why(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(stemma.IoError, match=r"\(Not a directory\)$") as raised:
        stemma.PageStore.disk(str(tmp_path / "file" / "store"), value_bytes=4096, bytes_max=64 << 20)
    assert raised.value.errno == errno.ENOTDIR


def test_a_cache_that_shares_nothing_finds_nothing():
    cache = stemma.Cache(pages=8, page_size=4, cache="none")
    publish(cache, text(0, 9))
    assert cache.probe(text(0, 9)) == 0 and cache.stats()["free_pages"] == 8


def test_threads_take_turns(cache):
    def work(first):
        for turn in range(200):
            publish(cache, text(first + turn % 5, 12))

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = cache.stats()
    assert stats["free_rows"] == 3 and stats["locked_tokens"] == 0


def test_long_calls_let_other_threads_run():
    cache = stemma.Cache(pages=9000, page_size=16, context_tokens_max=60_000)

    def work(first):
        for _ in range(5):
            publish(cache, text(first, 40_000))
            gc.collect()

    threads = [threading.Thread(target=work, args=(at % 2,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.probe(text(0, 40_000)) == 39_984 and cache.stats()["locked_tokens"] == 0
    cache.audit()


# Whether the other thread is given a processor meanwhile is the system's to say; where it is not let, it never is.
def test_other_threads_run_while_a_cache_is_opened(set_switch_interval):
    def thread_comes_first():
        opening, ends = threading.Event(), []

        def wait():
            opening.wait()
            ends.append("thread")

        thread = threading.Thread(target=wait)
        thread.start()
        opening.set()
        cache = stemma.Cache(pages=1 << 22)
        ends.append("cache")
        del cache  # not before: others run then, too
        thread.join()
        return ends == ["thread", "cache"]

    set_switch_interval(60)  # from here on the other thread runs only where it is let
    assert any(thread_comes_first() for _ in range(50))


# They hash: a second for each 20 million tokens or so.
@pytest.mark.parametrize("what", ["keys", "namespace"])
def test_other_threads_run_while_a_long_text_is_hashed(what, set_switch_interval):
    text = numpy.arange(1 << 20, dtype=numpy.int32)
    cache = stemma.Cache(pages=1, page_size=16, context_tokens_max=1 << 20)
    shared = cache.namespace(model="m")
    call = {
        "keys": lambda: stemma.page_keys(text, 16, bytes(32)),
        "namespace": lambda: cache.namespace_behind(shared, text, tenant="ada"),
    }[what]

    def thread_comes_first():
        calling, ends = threading.Event(), []

        def wait():
            calling.wait()
            ends.append("thread")

        thread = threading.Thread(target=wait)
        thread.start()
        calling.set()
        call()
        ends.append("call")
        thread.join()
        return ends[0] == "thread"

    set_switch_interval(60)  # the other thread runs only where it is let
    assert any(thread_comes_first() for _ in range(10))
