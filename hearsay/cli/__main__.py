"""`python -m hearsay.cli`."""

from hearsay.cli import main

main()
