#!/bin/sh
# The scheduler's image as an OCI archive: scripts/build-image.sh OUT.tar [NAME]   (`make image`)
#
# BASE names an image with Python 3.11 or later (python:3.11-slim by default in deploy/Containerfile). BASE=packages, or
# no registry that answers: a base is made from Debian's packages. Needs root, buildah and, for such a base,
# debootstrap; both are installed with apt where they are missing.
set -eu
out=${1:?"where does the archive go? usage: scripts/build-image.sh OUT.tar [NAME]"}
name=${2:-localhost/wattflow/wattflow:test}
base=${BASE:-python:3.11-slim}
here=$(cd "$(dirname "$0")/.." && pwd)

need() {
    command -v "$1" >/dev/null 2>&1 && return
    echo "image: installing $1"
    apt-get install -y --no-install-recommends "$1" >/dev/null || { echo "image: $1 is missing, and apt does not have it" >&2; exit 2; }
}

need buildah
work=$(mktemp -d)
store="buildah --root $work/store --runroot $work/run --storage-driver vfs"
tidy() { $store rm --all >/dev/null 2>&1 || true; rm -rf "$work"; }
trap tidy EXIT INT TERM

if [ "$base" = packages ] || ! timeout 60 $store pull -q "$base" >/dev/null 2>&1; then
    need debootstrap
    echo "image: a base of Debian's packages"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/base" >"$work/log" 2>&1 ||
        { tail -5 "$work/log" >&2; exit 1; }
    made=$($store from scratch)
    $store add -q "$made" "$work/base" / >/dev/null
    base=localhost/wattflow/base:packages
    $store commit -q "$made" "$base" >/dev/null
    $store rm "$made" >/dev/null
    rm -rf "$work/base"
fi

echo "image: installing and compiling (about three minutes)"
mkdir "$work/sources"
git -C "$here" ls-files -z --cached --others --exclude-standard | (cd "$here" && xargs -0 tar c --ignore-failed-read) | tar x -C "$work/sources"
# The machine's certificates, so that an index behind a company's own is trusted while building.
$store build --isolation chroot --build-arg "BASE=$base" --volume /etc/ssl/certs:/etc/ssl/certs:ro \
    -f "$work/sources/deploy/Containerfile" -t "$name" "$work/sources" >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }
mkdir -p "$(dirname "$out")"
rm -f "$out"
$store push -q --disable-compression "$name" "oci-archive:$out:$name"
echo "image: $name in $out ($(du -m "$out" | cut -f1) MB)"
