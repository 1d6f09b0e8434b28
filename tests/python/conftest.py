"""Packages of other engines are not installed here: stand-ins with their interfaces are. A redis-server is."""

import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "stand_ins"))


@pytest.fixture(scope="session")
def redis():
    """A server's URL."""
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--loglevel", "warning"]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).stdout != b"PONG\n":
        assert time.monotonic() < until and server.poll() is None
    yield f"redis://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.fixture
def set_switch_interval():
    """Sets how many seconds a thread runs before others may, until the test ends."""
    interval = sys.getswitchinterval()
    yield sys.setswitchinterval
    sys.setswitchinterval(interval)
