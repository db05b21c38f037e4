"""The serverless runtime: a service on the live engine, drivers that execute, executors on a node, and the client."""
