"""The command line: `hearsay COMMAND`."""

from hearsay.cli.commands import main

__all__ = ["main"]
