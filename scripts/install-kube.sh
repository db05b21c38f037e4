#!/bin/sh
# Installs what the rig's real nodes need beside its own programs, where apt can: runc, the CNI plugins, a static busybox
# and openssl. Without apt or root it says so and ends with 0: the tests that need them skip by name, or fail where
# WATTFLOW_REQUIRE=1.
set -u

missing=""
command -v runc >/dev/null 2>&1 || missing="$missing runc"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
[ -e /usr/lib/cni/loopback ] || missing="$missing containernetworking-plugins"
{ command -v busybox >/dev/null 2>&1 && ! ldd "$(command -v busybox)" >/dev/null 2>&1; } || missing="$missing busybox-static"
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "install-kube.sh:$missing not installed: needs apt-get and root; the rig then has no real nodes" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
install() {
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >/tmp/wattflow-install-kube.log 2>&1
}
install || { apt-get update -qq >/dev/null 2>&1 && install; } ||
    echo "install-kube.sh: apt could not install$missing (see /tmp/wattflow-install-kube.log)" >&2
exit 0
