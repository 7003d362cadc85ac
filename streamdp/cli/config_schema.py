"""`streamdp config-schema`: the JSON Schema of a configuration."""

from __future__ import annotations

import argparse
import json

HELP = "print the JSON Schema of a configuration"
DESCRIPTION = """\
Prints the JSON Schema (draft 2020-12) of a stream's configuration, for editors that complete and check TOML:

    streamdp config-schema > streamdp.schema.json"""
ORDER = 91


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: there is one schema."""


def run(arguments: argparse.Namespace) -> int:
    from streamdp.config.schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
