"""Makes docs/commands.md from the commands' own help: `python -m streamdp.cli._document > docs/commands.md`."""

from __future__ import annotations

import argparse
import os

from streamdp.cli import build_parser

INTRODUCTION = """\
# Commands

Exit codes: 0 fine, 1 failed at run time, 2 wrong usage or configuration.

This page is generated from the commands' own help: `make docs`.
"""


def document() -> str:
    """The page: every command with the help it prints at 100 columns."""
    os.environ["COLUMNS"] = "100"
    os.environ["NO_COLOR"] = "1"
    pages = [INTRODUCTION]
    for name, parser in _commands(build_parser()):
        pages.append(f"## `{name}`\n\n```text\n{parser.format_help().rstrip()}\n```\n")
    return "\n".join(pages)


def _commands(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    """The parser itself and everything below it, in order."""
    found = [(parser.prog, parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                found += _commands(command)
    return found


if __name__ == "__main__":
    print(document(), end="")
