"""`python -m hearsay`."""

from hearsay.cli.commands import main

main()
