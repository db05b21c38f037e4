"""`python -m wattflow.cli`, where the console script is not installed."""

from wattflow.cli.main import main

main()
