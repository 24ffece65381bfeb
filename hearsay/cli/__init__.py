"""The command line: `hearsay COMMAND`."""

import sys


def main() -> None:
    """Entry point. The commands are imported here, where an interrupt can be caught."""
    try:
        from hearsay.cli import commands
    except KeyboardInterrupt:
        sys.exit(130)
    commands.main()


__all__ = ["main"]
