"""Traces through the cache: what it would have hit, with another capacity or another eviction order."""

from __future__ import annotations

import dataclasses
import numbers
import os
from typing import Sequence, Union

from . import _stemma

Paths = Union[str, os.PathLike, Sequence[Union[str, os.PathLike]]]


@dataclasses.dataclass(frozen=True)
class ReplayReport:
    """What one policy at one capacity did. Pages are of `page_tokens` tokens."""

    policy: str
    capacity_pages: int
    page_tokens: int
    requests: int
    lookup_pages: int
    hit_pages: int
    evicted_pages: int
    hit_rate: float  # hit_pages / lookup_pages


def replay(
    trace: Paths,
    *,
    capacity_pages: Union[int, Sequence[int]],
    policy: Union[str, Sequence[str]] = "lru",
    format: str = "mooncake",
    page_tokens: int = 0,
    skip_bad: bool = False,
) -> list[ReplayReport]:
    """Reads a trace once and replays it for every policy and capacity.

    trace: a file, or several that are merged by time. format: "mooncake", "qwen-bailian", "block-hash", "prompts",
    "kv-events" or "capture". page_tokens: tokens a page, where the format does not know (0: it does). skip_bad leaves
    wrong lines out. policy: names as of Cache(eviction=...).
    """
    paths = [trace] if isinstance(trace, (str, os.PathLike)) else trace
    policies = [policy] if isinstance(policy, str) else policy
    capacities = [capacity_pages] if isinstance(capacity_pages, numbers.Integral) else list(capacity_pages)
    lanes = [(name, pages) for name in policies for pages in capacities]
    reports = _stemma.replay([os.fspath(path) for path in paths], format, lanes, page_tokens, skip_bad)
    return [ReplayReport(**report) for report in reports]
