"""`octavo serve`: the flags of the HTTP server. Knows no protocol."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from octavo.cli.flags import add_engine_flags, add_setting_flags, engine_settings, other_settings
from octavo.config import EngineConfig
from octavo.server.settings import ServerConfig

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM

USAGE = "octavo serve MODEL [options]"
SUMMARY = """\
Serve a model over HTTP, with OpenAI's protocol: /v1/chat/completions, /v1/completions, /v1/models; besides /health,
/ready, /metrics, /version, /tokenize and /detokenize. SIGTERM and Ctrl-C let running requests finish; a second one
ends at once.

examples:
  octavo serve smollm2-135m
  octavo serve model.gguf --port 9000 --served-model-name mine --api-keys keys.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("model", metavar="MODEL", help="an alias, a .gguf file, a Hugging Face directory or a hub id")
    add_setting_flags(parser, "server", ServerConfig)
    add_engine_flags(parser)


def run(arguments: argparse.Namespace, make_llm: MakeLLM) -> int:
    """Serve until told to stop."""
    engine = EngineConfig(**engine_settings(arguments))
    config = ServerConfig(**other_settings(arguments, ServerConfig))
    from octavo.server.run import serve

    return serve(arguments.model, engine, config)
