"""tiktoken behind the TokenCounter port: o200k_base, shipped with the package, never downloaded."""

from __future__ import annotations

from proxy.adapters.tokens.counter import TiktokenCounter

__all__ = ["TiktokenCounter"]
