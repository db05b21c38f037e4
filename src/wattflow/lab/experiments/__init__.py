"""Published claims, replayed: one module per kind of experiment. `wattflow.lab.experiment` registers them."""
