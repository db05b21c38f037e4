"""How a task runs on a node: a process of its own, a reused worker, a share of a GPU, an FPGA kernel."""
