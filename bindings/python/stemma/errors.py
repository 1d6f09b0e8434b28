"""What stemma raises: one class a kind of error, all of them `Error`."""

from __future__ import annotations

import os
from typing import Optional


class Error(Exception):
    """A call that failed. `code` says how, str() is one line for a person, `sys_errno` is the system's or 0."""

    code = "internal"
    sys_errno = 0


class _SystemError(Error, OSError):
    """One that is an OSError, too: it says what OSErrors say of what the system answered."""

    @property
    def errno(self) -> Optional[int]:
        return self.sys_errno or None

    @property
    def strerror(self) -> Optional[str]:
        return os.strerror(self.sys_errno) if self.sys_errno else None


class InvalidArgumentError(Error, ValueError):
    """A value of the caller's is wrong: an option, a request, an array."""

    code = "invalid_argument"


class NotFoundError(Error, LookupError):
    """A named thing does not exist, or not any more: a file, a policy, an evicted prefix."""

    code = "not_found"


class UnsupportedError(Error, NotImplementedError):
    """Well-formed, but not something this build can do."""

    code = "unsupported"


class CorruptError(Error):
    """Bytes contradict their own format or checksum."""

    code = "corrupt"


class IoError(_SystemError):
    """The operating system refused; `sys_errno` says why."""

    code = "io"


class OutOfMemoryError(Error, MemoryError):
    """Memory that was asked for cannot be had."""

    code = "out_of_memory"


class TooLargeError(Error, ValueError):
    """Beyond a limit that was set when the object was opened."""

    code = "too_large"


class CancelledError(Error):
    """The caller gave up."""

    code = "cancelled"


class DeadlineError(_SystemError, TimeoutError):
    """The time allowed ran out."""

    code = "deadline"


class InternalError(Error, RuntimeError):
    """A contradiction in stemma itself, or in a library below it."""

    code = "internal"


_BY_CODE = {
    kind.code: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        UnsupportedError,
        CorruptError,
        IoError,
        OutOfMemoryError,
        TooLargeError,
        CancelledError,
        DeadlineError,
        InternalError,
    )
}


def error_of(code: str, detail: str, sys_errno: int = 0) -> Error:
    """The exception of an error code; its line ends with what the system says, where that said something."""
    error = _BY_CODE[code](f"{detail} ({os.strerror(sys_errno)})" if sys_errno else detail)
    error.sys_errno = sys_errno
    return error
