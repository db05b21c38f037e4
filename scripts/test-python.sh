#!/bin/sh
# The unit tests under another interpreter, in an environment of its own below build/.
# Usage: test-python.sh PYTHON [pytest's arguments]
set -eu
python=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
folder=$here/build/python-$version
if [ ! -x "$folder/bin/pytest" ]; then
  "$python" -m venv "$folder"
  "$folder/bin/pip" install -q --disable-pip-version-check -c "$here/constraints.txt" -e "$here[dev]"
fi
cd "$here"
"$folder/bin/python" --version
WATTFLOW_CACHE=$folder/cache "$folder/bin/python" -m pytest -n 2 --dist loadgroup -m "not slow" tests/unit "$@"
