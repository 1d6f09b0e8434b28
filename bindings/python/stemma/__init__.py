"""Stemma: a prefix-sharing, tiered KV cache for LLM serving.

Cache and Sequence hand out pages of keys and values to token sequences that share prefixes. The modules
compat_minisgl, compat_sglang, compat_vllm and compat_lmcache stand in for the caches of other engines.
"""

from __future__ import annotations

from . import errors
from ._stemma import Cache, Namespace, PageList, Pool, Sequence, TensorPart, __version__
from .errors import (
    CancelledError,
    CorruptError,
    DeadlineError,
    Error,
    InternalError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    OutOfMemoryError,
    TooLargeError,
    UnsupportedError,
)

__all__ = [
    "Cache",
    "CancelledError",
    "CorruptError",
    "DeadlineError",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "Namespace",
    "NotFoundError",
    "OutOfMemoryError",
    "PageList",
    "Pool",
    "Sequence",
    "TensorPart",
    "TooLargeError",
    "UnsupportedError",
    "__version__",
    "errors",
]
