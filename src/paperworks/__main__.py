"""`python -m paperworks` is the command line."""

from paperworks.cli import main

if __name__ == "__main__":
    main()
