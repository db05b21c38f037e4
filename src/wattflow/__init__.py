"""wattflow: energy-aware scheduling of serverless scientific workflows on mixed hardware."""

__version__ = "0.1.0"
