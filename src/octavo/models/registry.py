"""Which architectures there are and who reads them. The one list to extend for a new family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from octavo.errors import UnsupportedModel
from octavo.models import gemma3, llama
from octavo.models.source import Source
from octavo.models.spec import ModelSpec

Reader = Callable[[Source], ModelSpec]

GGUF_READERS: Mapping[str, Reader] = MappingProxyType({"llama": llama.from_gguf, "gemma3": gemma3.from_gguf})
HF_READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "LlamaForCausalLM": llama.from_hf,
        "MistralForCausalLM": llama.mistral_from_hf,
        "Gemma3ForCausalLM": gemma3.from_hf,
    }
)


def reader(architecture: str, readers: Mapping[str, Reader]) -> Reader:
    """The reader of an architecture; UnsupportedModel names it and lists those that are supported."""
    if architecture not in readers:
        listed = ", ".join(readers)
        raise UnsupportedModel(f"architecture {architecture!r:.80} is not supported; supported are {listed}")
    return readers[architecture]
