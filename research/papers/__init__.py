"""Published claims, replayed: one module per kind; `research.papers.experiment` registers them."""
