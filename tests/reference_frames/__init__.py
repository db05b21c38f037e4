"""Random frames and workloads, and a small independent simulator of three frames in plain Python."""
