"""Every command explains itself, and the page of commands says the same."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

import streamdp
from streamdp.cli import build_parser, main, verb_name, verbs
from streamdp.cli._document import _commands

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_the_page_is_what_the_commands_say():
    made = subprocess.run(
        [sys.executable, "-m", "streamdp.cli._document"], capture_output=True, text=True, check=True
    ).stdout
    assert PAGE.read_text() == made, "run `make docs`"


@pytest.mark.parametrize("name", [verb_name(module) for module in verbs()])
def test_every_command_has_help_that_teaches(name, capsys):
    with pytest.raises(SystemExit) as ending:
        main([name, "--help"])
    assert ending.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 5


def test_every_argument_says_what_it_is():
    for name, parser in _commands(build_parser()):
        for action in parser._actions:
            if not isinstance(action, argparse._SubParsersAction):
                assert action.help, f"{name}: {action.dest}"


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"streamdp {streamdp.__version__}\n"


def test_wrong_usage_is_exit_code_two():
    with pytest.raises(SystemExit) as ending:
        main(["dance"])
    assert ending.value.code == 2


def test_a_missing_configuration_is_one_clear_line(capsys):
    assert main(["check", "there-is-no-such-file.toml"]) == 2
    said = capsys.readouterr().err
    assert "there-is-no-such-file.toml" in said
    assert "Traceback" not in said
