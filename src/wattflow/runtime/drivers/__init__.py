"""Where work runs: local, agents, Slurm, Dask. All fulfil `base.Driver`."""
