"""The store that the options of an engine's connector name."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Mapping

from . import _stemma
from .errors import DeadlineError, InvalidArgumentError


# Of a call of a server. An engine's scheduler waits for it, and with it all requests: a server that hangs is asked again and
# again, seldom in the end, to find out when it is back.
REMOTE_DEADLINE_US = 250_000
# To empty a store, which an engine is told to and waits for: of a server some 200,000 values a second.
EMPTYING_S = 20


def open_store(options: Mapping[str, Any]) -> Any:
    """remote, a URL of Redis, secret and deadline_us; or directory and bytes_max, of a disk. value_bytes for both.

    A directory is opened once a process: engines have a connector for each of their halves.
    """
    if "remote" in options:
        more = {"secret": options.get("secret", ""), "deadline_us": options.get("deadline_us", REMOTE_DEADLINE_US)}
        return _stemma.PageStore.remote(options["remote"], value_bytes=options["value_bytes"], **more)
    return _DiskShare(options["directory"], options["value_bytes"], options["bytes_max"])


def check_page_fits(options: Mapping[str, Any], page_bytes: int) -> None:
    """What does not fit is not stored, and nobody would learn why nothing is found. A store that was given says no size."""
    if page_bytes > options.get("value_bytes", page_bytes):
        raise InvalidArgumentError(f"value_bytes: a page of {page_bytes} bytes does not fit {options['value_bytes']}")


def empty_store(store: Any) -> None:
    """Each call removes what it gets to within its deadline, which of a server with many values is a part of them."""
    until = time.monotonic() + EMPTYING_S
    while True:
        try:
            return store.clear()
        except DeadlineError:
            if time.monotonic() >= until:
                raise


class _Disk:
    """An open directory and the ids of the shares that have it."""

    def __init__(self, store: _stemma.PageStore, value_bytes: int):
        self.store, self.value_bytes = store, value_bytes
        self.users: set[int] = set()


# Held while a directory is opened or closed. A thread that does so may be called upon there to close another share, by its
# handlers of signals or by the collector.
_disks_lock = threading.RLock()
_disks: dict[str, _Disk] = {}  # those that are open


def _begin_anew() -> None:
    """In a child of fork(): what is open is its parent's, and so is who holds the lock, which may be a thread of that one."""
    global _disks_lock
    _disks_lock = threading.RLock()
    _disks.clear()


os.register_at_fork(after_in_child=_begin_anew)


class _DiskShare:
    """One user's share of a disk store, which is closed with the last of them; in a child of fork(), with none."""

    _disk = None  # closed

    def __init__(self, directory: str, value_bytes: int, bytes_max: int):
        self._path = os.path.realpath(directory)
        with _disks_lock:
            while True:
                disk = _disks.get(self._path)
                if disk is None:
                    store = _stemma.PageStore.disk(directory, value_bytes=value_bytes, bytes_max=bytes_max)
                    disk = _disks[self._path] = _Disk(store, value_bytes)
                if disk.value_bytes != value_bytes:
                    raise InvalidArgumentError(f"value_bytes: {directory} is open with {disk.value_bytes}")
                self._disk = disk
                disk.users.add(id(self))
                if _disks.get(self._path) is disk:  # else a handler of signals has closed it, before it had this user
                    return

    def __getattr__(self, name: str) -> Any:
        if self._disk is None:
            raise InvalidArgumentError("the store is closed")
        return getattr(self._disk.store, name)

    def close(self) -> None:
        """May be repeated."""
        with _disks_lock:
            disk = self._disk
            if disk is None:
                return
            disk.users.discard(id(self))
            self._disk = None
            # The users are looked at last: before that a handler of signals may have found it a new one.
            if _disks.get(self._path) is disk and not disk.users:
                del _disks[self._path]
                disk.store.close()

    def __del__(self):
        self.close()
