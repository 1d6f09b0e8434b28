"""The interpreter ends as it does without stemma, whatever threads are doing that it does not wait for."""

import pathlib
import subprocess
import sys
import textwrap

import pytest

MODEL = pathlib.Path(__file__).parents[2] / "models/scribe-3m"
BEGIN = f"""
import os, threading
import numpy, stemma

def repeat(work):
    started = threading.Event()
    def loop():
        while True:
            started.set()
            work()
    threading.Thread(target=loop, daemon=True).start()
    started.wait()

def engine():
    return stemma.LLM({str(MODEL)!r}, kv_bytes=1 << 24, threads=1)

def generate(llm):
    llm.generate("hi", {{"max_tokens": 400, "ignore_eos": True, "n": 8}})
"""


def run(code, first=""):
    program = textwrap.dedent(first) + BEGIN + textwrap.dedent(code) + "\nprint('main ends', flush=True)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "code",
    [
        "llm = engine(); repeat(lambda: generate(llm))",
        """
        cache = stemma.Cache(pages=4096, context_tokens_max=1 << 16)
        text = numpy.arange(1 << 16, dtype=numpy.int32)
        held = cache.begin(text)
        for _ in range(4):
            repeat(lambda: cache.probe(text))
        """,
        """
        store = stemma.PageStore.memory(value_bytes=1 << 20, bytes_max=1 << 24)
        for _ in range(4):
            repeat(lambda: store.put(os.urandom(8), bytes(1 << 20)))
        """,
    ],
    ids=["engine", "cache", "store"],
)
def test_threads_that_nobody_waits_for_do_not_abort_it(code):
    for _ in range(5):
        ended = run(code)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "main ends\n", "")


def test_an_engine_gives_up_and_others_can_have_it():
    ended = run(
        first="""
        import atexit

        def wait_for_it():
            thread.join()
            print(len(llm.generate("hi", {"max_tokens": 2})[0].outputs[0].token_ids), "tokens")

        atexit.register(wait_for_it)  # before stemma is there: it is called behind what stemma registers
        """,
        code="""
        def answer():
            try:
                while True:
                    generate(llm)
            finally:
                print("given up")

        llm = engine()
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        """,
    )
    assert (ended.stdout, ended.stderr) == ("main ends\ngiven up\n2 tokens\n", "")
    assert ended.returncode == 0


# What libraries below keep for the whole process is gone before its threads are.
def test_no_call_is_under_way_when_the_process_ends():
    ended = run(
        first="""
        import atexit

        def look():
            ending.append(True)
            for _ in range(100):
                store.put("name", bytes(1 << 20))
            print(len(late), "calls ended since")

        atexit.register(look)  # before stemma is there: it is called behind what stemma registers
        """,
        code="""
        store, ending, late = stemma.PageStore.memory(value_bytes=1 << 20, bytes_max=1 << 24), [], []

        def put():
            store.put(os.urandom(8), bytes(1 << 20))
            late.extend(ending)

        for _ in range(4):
            repeat(put)
        """,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout.removeprefix("main ends\n").split()[0]) <= 4, "one a thread, that was over already"
