"""The store that the options of an engine's connector name."""

from __future__ import annotations

from typing import Any, Mapping

from . import _stemma


def open_store(options: Mapping[str, Any]) -> _stemma.PageStore:
    """remote, a URL of Redis, and secret; or directory and bytes_max, of a disk. value_bytes for both."""
    if "remote" in options:
        secret = options.get("secret", "")
        return _stemma.PageStore.remote(options["remote"], value_bytes=options["value_bytes"], secret=secret)
    return _stemma.PageStore.disk(
        options["directory"], value_bytes=options["value_bytes"], bytes_max=options["bytes_max"]
    )
