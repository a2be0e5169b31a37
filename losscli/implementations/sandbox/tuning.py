"""Detects kernel tuning, which counts as building."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from losscli.implementations.languages import LANGUAGES


class Tuning:
    """The tuning in a worker so far."""

    def __init__(self, begins: Callable[[], None]) -> None:
        """``begins`` is called when a request first starts tuning."""
        self.seconds = 0.0
        self._begins, self._begun, self._depth = begins, False, 0
        self._watched: set[Any] = set()

    def watch(self) -> None:
        """Watch newly imported tuners; a new request begins."""
        self._begun = False
        for language in LANGUAGES:
            module, name, method = language.tuner or ("", "", "")
            tuner = getattr(sys.modules.get(module), name, None)
            if tuner is not None and tuner not in self._watched and hasattr(tuner, method):
                self._watched.add(tuner)
                setattr(tuner, method, self._timed(getattr(tuner, method)))

    def _timed(self, tune: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(tune)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            if not self._begun:
                self._begun = True
                self._begins()
            start, self._depth = time.monotonic(), self._depth + 1
            try:
                return tune(*arguments, **keywords)
            finally:
                self._depth -= 1
                if not self._depth:  # one language tunes by another
                    self.seconds += time.monotonic() - start

        return timed
