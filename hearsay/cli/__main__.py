"""`python -m hearsay.cli`."""

from hearsay.cli import main

if __name__ == "__main__":
    main()
