"""Stands for mini-SGLang in tests: its interfaces, as far as a cache meets them. None of its code."""
