#!/bin/sh
# Wheel and sdist of this checkout, built as pip would build them.
# Usage: build-dist.sh PYTHON FOLDER
set -eu
python=$1
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
tools=$here/build/dist-tools
if ! "$tools/bin/python" -c 'import build, zopfli' 2>/dev/null; then
  "$python" -m venv "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check -c "$here/constraints.txt" build zopfli
fi
# From the files that git knows: what lies about in the folder must not travel.
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git -C "$here" checkout-index -a --prefix="$source/"
rm -f "$out"/wattflow-*
"$tools/bin/pyproject-build" -o "$out" "$source" >/dev/null
"$tools/bin/python" "$here/tools/pack_wheel.py" "$out"/wattflow-*.whl
ls -l "$out"/wattflow-*
