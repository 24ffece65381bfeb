"""The command line: `hearsay COMMAND`."""

import sys

from hearsay import _interrupts


def main() -> None:
    """Entry point. The commands are imported here, where an interrupt can be caught."""
    try:
        from hearsay.cli import commands
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        commands.main()
    finally:
        _interrupts.ended()


__all__ = ["main"]
