"""Published claims, replayed: one module per kind; `wattflow.lab.experiments.experiment` registers them."""
