"""The context that says how many tokens a page has."""

from dataclasses import dataclass


@dataclass
class Context:
    page_size: int


_GLOBAL_CTX = None


def set_global_ctx(context):
    global _GLOBAL_CTX
    _GLOBAL_CTX = context


def get_global_ctx():
    assert _GLOBAL_CTX is not None, "no context was set"
    return _GLOBAL_CTX
