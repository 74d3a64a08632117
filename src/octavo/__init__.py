"""octavo: LLM inference and an embeddable KV memory library on PagedAttention.

The names below load on first use, so that `import octavo` and `import octavo.kv` need the standard library alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.config import EngineConfig
    from octavo.engine.async_engine import AsyncEngine
    from octavo.engine.llm import LLM
    from octavo.grammar import Grammar
    from octavo.options import RequestOptions, Tenant
    from octavo.params import SamplingParams

__version__ = "0.1.0"

__all__ = ["LLM", "AsyncEngine", "EngineConfig", "Grammar", "RequestOptions", "SamplingParams", "Tenant", "__version__"]

_HOMES = {
    "LLM": "octavo.engine.llm",
    "AsyncEngine": "octavo.engine.async_engine",
    "EngineConfig": "octavo.config",
    "Grammar": "octavo.grammar",
    "RequestOptions": "octavo.options",
    "SamplingParams": "octavo.params",
    "Tenant": "octavo.options",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
