"""Ctrl-C while a command is still being imported: exit code 130, and no traceback.

Imports take seconds, and Python runs those of the package before anything that could catch an
interrupt. So this is imported before all others, and acts where the process is a command.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import NoReturn


def _is_command() -> bool:
    """`hearsay ...`, as installed, or `python -m hearsay.cli ...`."""
    said = getattr(sys, "argv", None) or [""]
    if said[0] == "-m":  # Python still looks for the module
        return "hearsay.cli" in sys.orig_argv
    return os.path.basename(said[0]) == "hearsay" and said[0] in sys.orig_argv


def _leave(*_: object) -> NoReturn:
    # Nothing has been done yet. An exception would be caught, or printed, by whatever is imported.
    os._exit(130)


def over() -> None:
    """From here on an interrupt is an exception again, and the command catches it."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    _is_command()
    and threading.current_thread() is threading.main_thread()
    # A shell's background job ignores Ctrl-C, and goes on doing so.
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _leave)
