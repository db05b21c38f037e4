#!/bin/sh
# Wheel and sdist as a user gets them: all extras in an empty environment, and the README's commands there.
# Usage: test-dist.sh PYTHON FOLDER
set -eu
python=$1
here=$(cd "$(dirname "$0")/.." && pwd)
dist=$(cd "$2" && pwd)
folder=$(mktemp -d)
trap 'WATTFLOW_HOME="$folder/home" "$folder/env/bin/wattflow" down >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
wheel=$(ls "$dist"/wattflow-*.whl)
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install -q --disable-pip-version-check -c "$here/constraints.txt" "$wheel[all]"
export PATH="$folder/env/bin:$PATH" WATTFLOW_HOME="$folder/home" WATTFLOW_CACHE="$folder/cache" WATTFLOW_TASKS_AS=self
cd "$folder"
wattflow --version
python -c 'import importlib.util as u; assert u.find_spec("research") is None and u.find_spec("tests") is None'
wattflow simulate montage:tasks=60 --cluster mixed --policy fifo --metrics makespan_s,energy_j,peak_w
wattflow compare demo:mixed -p heft,wattflow --seeds 1 -b kubernetes --report report.html
test -s report.html
wattflow docs --list | head -3
wattflow up --port 0
cat >work.py <<'E2'
import wattflow

def square(x):
    return x * x

with wattflow.Client() as ex:
    futures = [ex.submit(square, x) for x in range(6)]
    print(sum(future.result() for future in futures), futures[0].energy())
E2
python work.py
wattflow ps
wattflow down
# the sdist builds and installs as well
"$python" -m venv "$folder/other"
"$folder/other/bin/pip" install -q --disable-pip-version-check --no-deps "$dist"/wattflow-*.tar.gz
"$folder/other/bin/python" -c 'import wattflow; print("sdist", wattflow.__version__)'
# last: a wheel that is too large must not hide one that does not work
size=$(wc -c <"$wheel")
most=1800000
echo "figure wheel $size bytes goal ≤$most $([ "$size" -le $most ] && echo ok || echo short)"
if [ "$size" -gt $most ]; then
  echo "test-dist.sh: the wheel is larger than $most bytes; its largest parts:" >&2
  python -m zipfile -l "$wheel" | sort -k4 -n -r | head -20 >&2
  exit 1
fi
