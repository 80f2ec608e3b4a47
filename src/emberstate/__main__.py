"""`python -m emberstate`: the command line."""

from emberstate.cli.main import main

if __name__ == "__main__":
    main()
