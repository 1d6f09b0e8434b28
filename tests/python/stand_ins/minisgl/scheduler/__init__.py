"""What a scheduler's process knows."""


def say_caches(words):
    from minisgl.kvcache import SUPPORTED_CACHE_MANAGER

    print(*words, *SUPPORTED_CACHE_MANAGER, flush=True)
