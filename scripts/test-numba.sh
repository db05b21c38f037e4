#!/bin/sh
# Tests of the kernel and the golden runs under one version of numba, in an environment of its own.
# Usage: test-numba.sh PYTHON VERSION
set -eu
python=$1
version=$2
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$here/build/numba-$version
if [ ! -x "$folder/bin/pytest" ]; then
  "$python" -m venv "$folder"
  "$folder/bin/pip" install -q --disable-pip-version-check "numba==$version" numpy pyarrow typer rich pytest hypothesis
fi
echo "numba $version"
cd "$here"
# the list of interfaces compiles nothing and needs what a server needs
PYTHONPATH=$here/src:$here/tests WATTFLOW_CACHE=$folder/cache "$folder/bin/python" -m pytest -q \
  tests/unit/kernel tests/golden --ignore tests/golden/test_interfaces.py
