"""`python -m drumlin` is the `drumlin` command."""

from drumlin.cli.main import main

if __name__ == "__main__":
    main()
