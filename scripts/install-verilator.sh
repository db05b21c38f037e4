#!/bin/sh
# Verilator and a C++ compiler, for FPGA kernels; tests that need them skip by name without.
set -e
command -v verilator >/dev/null 2>&1 && command -v g++ >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "verilator and g++ are not here and cannot be installed: FPGA tests will skip" >&2
    exit 0
fi
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends verilator g++ make ||
    echo "verilator could not be installed: FPGA tests will skip" >&2
