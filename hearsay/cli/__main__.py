"""`python -m hearsay.cli`."""

from hearsay.cli.commands import main

main()
