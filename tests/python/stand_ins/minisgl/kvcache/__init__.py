"""The registry of caches, in which "radix" is what stemma registered."""

from .base import BaseCacheHandle, BaseKVCachePool, BasePrefixCache, InsertResult, MatchResult, SizeInfo  # noqa: F401


class Registry(dict):
    def register(self, name):
        def keep(creator):
            self[name] = creator
            return creator

        return keep


SUPPORTED_CACHE_MANAGER = Registry()


def create_prefix_cache(device, type):
    import stemma.compat_minisgl  # noqa: F401  registers itself

    return SUPPORTED_CACHE_MANAGER["stemma" if type == "radix" else type](device)
