"""Warnings of what goes on happening: said once."""

from __future__ import annotations

import logging


class FirstWarning:
    """Called as logging.warning is, and says the first one only."""

    def __init__(self, logger: str):
        self._logger = logging.getLogger(logger)
        self._has_warned = False

    def __call__(self, message: str, *arguments: object) -> None:
        if not self._has_warned:
            self._logger.warning(message, *arguments)
        self._has_warned = True
