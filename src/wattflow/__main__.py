"""`python -m wattflow`, where the console script is not on the path."""

from wattflow.cli.main import main

main()
