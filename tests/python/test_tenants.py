"""What a Cache of many tenants says: quotas, purges, who waits, forks, shared beginnings, events."""

import threading

import numpy
import pytest

import stemma


@pytest.fixture
def cache():
    return stemma.Cache(pages=8, page_size=4, context_tokens_max=64, events_pages_max=32)


def numbers(out):
    return numpy.asarray(out).tolist()


def text(first, count):
    return list(range(first, first + count))


def publish(cache, tokens, namespace=None):
    with cache.begin(tokens, namespace) as sequence:
        assert sequence.reserve(len(tokens))
        sequence.finish(tokens)


def found(cache, tokens, namespace=None):
    return cache.probe([*tokens, 99], namespace)


# Quotas and purges: of tenants, by name or by one of their namespaces.


def test_a_tenant_keeps_what_it_is_sure_of_while_others_have_pages(cache):
    ada, bob = cache.namespace(tenant="ada"), cache.namespace(tenant="bob")
    publish(cache, text(1, 8), ada)
    publish(cache, text(1, 16), bob)
    cache.set_quota("ada", 2)
    assert cache.quota("ada") == cache.quota(ada) == (2, 2) and cache.quota("bob") is None
    assert cache.evict(4) == 4
    assert found(cache, text(1, 8), ada) == 8 and found(cache, text(1, 16), bob) == 0


def test_a_quota_is_of_all_namespaces_of_a_tenant(cache):
    publish(cache, text(1, 8), cache.namespace(tenant="ada", salt="x"))
    publish(cache, text(1, 4), cache.namespace(tenant="ada", salt="y"))
    cache.set_quota(cache.namespace(tenant="ada"), 4)
    assert cache.quota("ada") == (4, 3)


@pytest.mark.parametrize("pages", [-1, 9])
def test_a_quota_is_of_the_caches_pages(cache, pages):
    with pytest.raises(stemma.InvalidArgumentError, match="pages"):
        cache.set_quota("ada", pages)


def test_a_purge_takes_what_a_tenant_has_and_nothing_else(cache):
    ada, bob = cache.namespace(tenant="ada", salt="x"), cache.namespace(tenant="bob")
    publish(cache, text(1, 8), ada)
    publish(cache, text(1, 8), bob)
    cache.purge("ada")
    assert found(cache, text(1, 8), ada) == 0 and found(cache, text(1, 8), bob) == 8
    cache.purge()
    assert found(cache, text(1, 8), bob) == 0


@pytest.mark.parametrize("tenant", ["7", 7, b"7"])
def test_a_tenant_of_any_kind_has_all_its_namespaces_purged_and_sure(cache, tenant):
    names = ["7", 7, b"7"]
    publish(cache, text(1, 4), cache.namespace(tenant=tenant, salt="x"))
    publish(cache, text(1, 4), cache.namespace(tenant=tenant, salt="y"))
    cache.set_quota(tenant, 4)
    assert [cache.quota(name) for name in names if name != tenant] == [None, None]
    assert cache.quota(tenant) == (4, 2)
    for name in names:
        if name != tenant:
            cache.purge(name)
    assert cache.quota(tenant) == (4, 2)
    cache.purge(cache.namespace(tenant=tenant, salt="x"))
    assert cache.quota(tenant) == (4, 0)


def test_no_purge_while_a_step_is_in_flight(cache):
    cache.begin_step()
    with pytest.raises(stemma.InvalidArgumentError, match="in flight"):
        cache.purge("ada")


def test_purges_take_turns_with_what_begins_in_other_threads(set_switch_interval):
    cache = stemma.Cache(pages=16, page_size=4, requests_max=64)
    ada, tokens, over = cache.namespace(tenant="ada"), numpy.arange(1, 10, dtype=numpy.int32), threading.Event()

    def purge():
        while not over.is_set():
            cache.purge("bob")

    def begin():
        for _ in range(30_000):
            for sequence in [cache.begin(tokens, ada) for _ in range(16)]:
                sequence.close()

    purges, begins = [[threading.Thread(target=work) for _ in range(2)] for work in (purge, begin)]
    set_switch_interval(1e-5)  # so that each is often amid a call of the other's
    for thread in [*purges, *begins]:
        thread.start()
    for thread in begins:
        thread.join()
    over.set()
    for thread in purges:
        thread.join()
    assert cache.stats()["free_rows"] == 64


def test_names_of_fields_are_told_apart_to_their_last_byte(cache):
    fields = {"tenant": "ada", "user": "u", "user\0id": "one"}
    publish(cache, text(1, 4), cache.namespace(**fields))
    assert found(cache, text(1, 4), cache.namespace(**fields)) == 4
    assert found(cache, text(1, 4), cache.namespace(**{**fields, "user\0id": "two"})) == 0
    cache.namespace(**{"x\0y": 1})


def test_only_names_and_namespaces_are_tenants(cache):
    with pytest.raises(stemma.InvalidArgumentError):
        cache.set_quota(7.5, 1)
    with pytest.raises(stemma.InvalidArgumentError, match="tenant"):
        cache.purge(None)
    with pytest.raises(stemma.InvalidArgumentError, match="another Cache"):
        cache.purge(stemma.Cache(pages=4).namespace(tenant="ada"))


# Hints of what will be used.


def test_what_a_waiting_request_will_find_goes_last(cache):
    publish(cache, text(1, 8))
    publish(cache, text(50, 8))
    cache.want(text(1, 9))
    assert cache.evict(2) == 2
    assert found(cache, text(1, 8)) == 8 and found(cache, text(50, 8)) == 0
    publish(cache, text(50, 8))
    cache.forget_wants()
    assert cache.evict(2) == 2
    assert found(cache, text(1, 8)) == 0


def test_priorities_count_under_their_policy():
    cache = stemma.Cache(pages=8, page_size=4, eviction="priority")
    for first, priority in ((1, 5), (50, 0)):
        with cache.begin(text(first, 8)) as sequence:
            sequence.set_priority(priority)
            sequence.reserve(8)
            sequence.finish(text(first, 8))
    assert cache.evict(2) == 2
    assert found(cache, text(1, 8)) == 8 and found(cache, text(50, 8)) == 0


def test_retention_has_three_names(cache):
    with cache.begin(text(1, 8)) as sequence:
        for name in ("short", "default", "long"):
            sequence.set_retention(name)
        with pytest.raises(stemma.InvalidArgumentError, match="retention"):
            sequence.set_retention("for ever")
        sequence.close_session()
    with pytest.raises(stemma.InvalidArgumentError, match="holds nothing"):
        sequence.close_session()


# Forks.


def test_a_fork_shares_full_pages_and_has_a_last_page_of_its_own(cache):
    sequence = cache.begin(text(1, 6))
    sequence.reserve(6)
    sequence.commit(text(1, 6))
    fork, copy, windowed = sequence.fork(6)
    assert fork.published_tokens == 4 and windowed is None
    assert fork.pages.tolist()[0] == sequence.pages.tolist()[0]
    assert copy == (sequence.pages.tolist()[1], fork.pages.tolist()[1]) and copy[0] != copy[1]
    whole, nothing, _ = sequence.fork(4)
    assert nothing is None and whole.pages.tolist() == sequence.pages.tolist()[:1]
    for held in (sequence, fork, whole):
        held.close()
    cache.audit()


def test_of_what_began_before_a_purge_there_is_no_fork(cache):
    with cache.begin(text(1, 12), ada := cache.namespace(tenant="ada")) as sequence:
        sequence.reserve(12)
        sequence.commit(text(1, 4))
        cache.purge(ada)
        sequence.commit(text(1, 12))
        assert sequence.fork(12) is None
        with pytest.raises(stemma.InvalidArgumentError, match="room"):
            sequence.fork(13)


def test_a_fork_that_cannot_be_is_refused_or_none():
    cache = stemma.Cache(pages=8, page_size=4, requests_max=1)
    sequence = cache.begin(text(1, 6))
    sequence.reserve(6)
    with pytest.raises(stemma.InvalidArgumentError, match="committed first"):
        sequence.fork(6)
    with pytest.raises(stemma.InvalidArgumentError, match="room"):
        sequence.fork(9)
    sequence.commit(text(1, 6))
    assert sequence.fork(6) is None, "there is no row"


def test_a_fork_is_of_no_more_tokens_than_a_sequence_may_have():
    cache = stemma.Cache(pages=8, page_size=4, context_tokens_max=2)
    sequence = cache.begin(text(1, 2))
    sequence.reserve(2)
    with pytest.raises(stemma.InvalidArgumentError, match="room"):
        sequence.fork(3)
    assert sequence.fork(2) is not None


# Layers that look back over a window only.


def test_a_long_text_holds_few_windowed_pages():
    cache = stemma.Cache(pages=16, page_size=4, window_tokens=8, windowed_pages=4)
    sequence = cache.begin(text(1, 40))
    for tokens in range(4, 44, 4):
        assert sequence.reserve(tokens)
        sequence.commit(text(1, tokens))
        sequence.advance(tokens)
    windowed = numbers(sequence.windowed_pages(40))
    assert windowed[:8] == [-1] * 8 and all(page >= 0 for page in windowed[8:])
    fork, copy, windowed_copy = sequence.fork(40)
    assert copy is None and windowed_copy is None
    for held in (fork, sequence):
        held.close()
    cache.audit()


def test_a_cache_without_a_window_has_no_windowed_pages(cache):
    sequence = cache.begin(text(1, 8))
    with pytest.raises(stemma.InvalidArgumentError, match="window_tokens"):
        sequence.windowed_pages(0)
    with pytest.raises(stemma.InvalidArgumentError, match="room"):
        sequence.advance(1)


def test_windowed_pages_come_back_from_host_memory():
    shape = {"layers": 1, "page_size": 4, "heads": 1, "head_dim": 8}
    pool, windowed = stemma.Pool(pages=16, **shape), stemma.Pool(pages=8, **shape)
    tiers = stemma.Tiers(pool, host_bytes=1 << 20, windowed_pool=windowed)
    with pytest.raises(stemma.InvalidArgumentError, match="windowed_pages"):
        stemma.Cache(pages=16, page_size=4, tiers=tiers, window_tokens=8, windowed_pages=7)
    cache = stemma.Cache(
        pages=16, page_size=4, tiers=tiers, window_tokens=8, windowed_pages=8, write_policy="write-through"
    )
    sequence = cache.begin(text(1, 12))
    sequence.reserve(12)
    rows = numpy.asarray(windowed.k(0))  # [pages, page_size, heads, head_dim]
    for number, page in enumerate(numbers(sequence.windowed_pages(0))):
        rows[page] = 10 + number
    sequence.finish(text(1, 12))
    cache.settle()
    assert cache.evict(16) == 3
    rows[:] = 0
    promotion = cache.promote(text(1, 13))
    while promotion.worth_waiting:
        cache.wait_transfers(us=1_000_000)
    promotion.release()
    with cache.begin(text(1, 13)) as again:
        assert again.cached_tokens == 12
        again.reserve(13)
        _, second, third, _ = numbers(again.windowed_pages(12))
        assert (rows[second] == 11).all() and (rows[third] == 12).all()


# Beginnings that all share.


def test_a_beginning_is_shared_and_what_follows_it_is_not(cache):
    everybody = cache.namespace(model="m")
    ada = cache.namespace_behind(everybody, text(1, 4), model="m", tenant="ada")
    bob = cache.namespace_behind(everybody, text(1, 4), model="m", tenant="bob")
    publish(cache, text(1, 8), ada)
    assert found(cache, text(1, 8), ada) == 8
    assert found(cache, text(1, 8), bob) == found(cache, text(1, 8), everybody) == 4
    cache.purge("ada")
    assert found(cache, text(1, 8), ada) == 4


def test_what_follows_one_beginning_is_never_taken_for_what_follows_another(cache):
    everybody = cache.namespace(model="m")
    one = cache.namespace_behind(everybody, text(1, 4), tenant="ada")
    other = cache.namespace_behind(everybody, text(11, 4), tenant="ada")
    publish(cache, [*text(1, 4), *text(70, 4)], one)
    assert found(cache, [*text(11, 4), *text(70, 4)], other) == 0
    with pytest.raises(stemma.InvalidArgumentError, match="do not begin"):
        cache.begin(text(11, 8), one)
    with pytest.raises(stemma.InvalidArgumentError, match="whole pages"):
        cache.namespace_behind(everybody, text(1, 3))


def test_nothing_goes_on_from_what_goes_on_from_another_namespace(cache):
    everybody = cache.namespace(model="m")
    ada = cache.namespace_behind(everybody, text(1, 4), tenant="ada")
    publish(cache, text(1, 12), ada)
    with pytest.raises(stemma.InvalidArgumentError, match="shared"):
        cache.namespace_behind(ada, text(5, 4), tenant="bob")  # whose texts would find pages of 5 behind 1 to 4
    assert cache.probe(text(1, 13), ada) == 12


def test_texts_that_go_on_otherwise_than_their_beginning_are_not_published(cache):
    everybody = cache.namespace(model="m")
    ada = cache.namespace_behind(everybody, text(1, 8), tenant="ada")
    other = [*text(1, 5), 60, 70, 80, *text(9, 4)]
    with cache.begin(other[:5], ada) as sequence:
        sequence.reserve(12)
        for publishes in (sequence.commit, sequence.finish):
            with pytest.raises(stemma.InvalidArgumentError, match="do not begin"):
                publishes(other)
        sequence.finish(other[:5])
    assert found(cache, other, everybody) == 4
    publish(cache, text(1, 8), ada)
    assert found(cache, text(1, 12), ada) == 8


# Events.


def test_events_tell_what_begins_to_be_found_and_what_stops(cache):
    namespace = cache.namespace(tenant="ada")
    publish(cache, text(1, 8), namespace)
    (stored,) = cache.drain_events()
    assert stored["kind"] == "stored" and stored["parent"] is None
    assert numbers(stored["tokens"]) == text(1, 8) and stored["namespace"] == namespace.digest
    assert len(stored["keys"]) == 2 and len(stored["keys"][0]) == 32
    cache.evict(2)
    removed = [key for event in cache.drain_events() if event["kind"] == "removed" for key in event["keys"]]
    assert sorted(removed) == sorted(stored["keys"])
    assert cache.drain_events() == []


def test_who_follows_from_now_on_is_told_everything(cache):
    publish(cache, text(1, 8))
    cache.drain_events()
    cache.resend_events()
    cleared, stored = cache.drain_events()
    assert cleared["kind"] == "cleared" and numbers(stored["tokens"]) == text(1, 8)


def test_without_room_for_events_there_are_none():
    cache = stemma.Cache(pages=8, page_size=4)
    publish(cache, text(1, 8))
    assert cache.drain_events() == []
