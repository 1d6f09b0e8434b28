"""stemma.replay: hit rates of traces."""

import json
import os
import signal
import threading

import numpy
import pytest

import stemma


@pytest.fixture
def trace(tmp_path):
    """Texts of four pages: a, b, then a again, three times over."""
    path, pages = tmp_path / "trace.jsonl", {"a": [1, 2, 3, 4], "b": [5, 6, 7, 8]}
    lines = [
        {"timestamp": 1000 * at, "input_length": 2048, "output_length": 1, "hash_ids": pages[name]}
        for at, name in enumerate("abaabaaba")
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_what_fits_is_hit_from_its_second_time_on(trace):
    (report,) = stemma.replay(trace, capacity_pages=8)
    assert (report.requests, report.lookup_pages, report.hit_pages) == (9, 36, 28)
    assert report.hit_rate == pytest.approx(28 / 36) and report.evicted_pages == 0 and report.page_tokens == 512


def test_policies_and_capacities_are_replayed_side_by_side(trace):
    reports = stemma.replay([trace], capacity_pages=[4, 8], policy=["lru", "mru"])
    assert [(r.policy, r.capacity_pages) for r in reports] == [("lru", 4), ("lru", 8), ("mru", 4), ("mru", 8)]
    assert reports[0].hit_rate < reports[1].hit_rate == reports[3].hit_rate
    assert reports[0].evicted_pages > 0


def test_capacities_may_be_any_whole_numbers_that_come_one_by_one(trace):
    reports = stemma.replay(trace, capacity_pages=(pages for pages in numpy.array([4, 8])), policy=["lru", "mru"])
    assert [(r.policy, r.capacity_pages) for r in reports] == [("lru", 4), ("lru", 8), ("mru", 4), ("mru", 8)]
    assert stemma.replay(trace, capacity_pages=numpy.int64(8)) == [reports[1]]


def test_what_a_handler_of_signals_raises_ends_a_replay(tmp_path):
    pipe, line = tmp_path / "pipe", b'{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}\n'
    os.mkfifo(pipe)
    lines_left = []

    def write():
        with open(pipe, "wb", buffering=0) as file:
            os.kill(os.getpid(), signal.SIGALRM)
            for lines in range(1000, -1, -1):
                try:
                    file.write(line * 1000)
                except BrokenPipeError:
                    return lines_left.append(lines)

    writer = threading.Thread(target=write)
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        writer.start()
        with pytest.raises(KeyboardInterrupt):
            stemma.replay(pipe, capacity_pages=8)
    finally:
        writer.join()
        signal.signal(signal.SIGALRM, old)
    assert lines_left and lines_left[0] > 0, "it was not read to its end"


def test_what_cannot_be_read_is_named(trace):
    with pytest.raises(stemma.NotFoundError, match="no such"):
        stemma.replay(trace, capacity_pages=8, format="no such")
    with pytest.raises(stemma.NotFoundError):
        stemma.replay(trace, capacity_pages=8, policy="no such")
    with pytest.raises(stemma.NotFoundError, match="nothing.jsonl"):
        stemma.replay(trace.parent / "nothing.jsonl", capacity_pages=8)
    with pytest.raises(stemma.InvalidArgumentError):
        stemma.replay(trace, capacity_pages=0)
    trace.write_text(trace.read_text() + "{\n")
    with pytest.raises(stemma.Error, match=":10"):
        stemma.replay(trace, capacity_pages=8)
    assert stemma.replay(trace, capacity_pages=8, skip_bad=True)[0].requests == 9
