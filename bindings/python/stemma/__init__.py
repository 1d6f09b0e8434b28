"""Stemma: a prefix-sharing, tiered KV cache for LLM serving.

Cache and Sequence hand out pages of keys and values to token sequences that share prefixes. The modules
compat_minisgl, compat_sglang, compat_vllm and compat_lmcache stand in for the caches of other engines.
"""

from __future__ import annotations

from . import errors
from ._stemma import (
    Cache,
    Namespace,
    PageList,
    PageStore,
    Pool,
    Promotion,
    Sequence,
    TensorPart,
    Tiers,
    __version__,
    page_keys,
    set_log_level,
)
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
from .llm import LLM, CompletionOutput, Logprob, RequestOutput, SamplingParams
from .replay import ReplayReport, replay

__all__ = [
    "Cache",
    "CancelledError",
    "CompletionOutput",
    "CorruptError",
    "DeadlineError",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "LLM",
    "Logprob",
    "Namespace",
    "NotFoundError",
    "OutOfMemoryError",
    "PageList",
    "PageStore",
    "Pool",
    "Promotion",
    "ReplayReport",
    "RequestOutput",
    "SamplingParams",
    "Sequence",
    "TensorPart",
    "Tiers",
    "TooLargeError",
    "UnsupportedError",
    "__version__",
    "errors",
    "page_keys",
    "replay",
    "set_log_level",
]
