"""FPGA kernels: described in Python (Amaranth), compiled to Verilog, run as real RTL by Verilator."""
