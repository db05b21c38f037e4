#!/bin/sh
# Installs the outside programs that the energy tests use, where apt can: Performance Co-Pilot (pmcd, pmproxy, pmdadenki)
# and stress-ng. Without apt, root or network it says so and ends with 0: the tests that need them skip by name.
#
#   scripts/install-pcp.sh            both
#   scripts/install-pcp.sh stress-ng  only what is named
set -u

wanted="${*:-pcp stress-ng}"
missing=""
for package in $wanted; do
    case "$package" in
        pcp) [ "$(dpkg-query -W -f '${Status}' pcp 2>/dev/null)" = "install ok installed" ] || missing="$missing pcp" ;;
        stress-ng) command -v stress-ng >/dev/null 2>&1 || missing="$missing stress-ng" ;;
        *) echo "install-pcp.sh: knows pcp and stress-ng, not $package" >&2; exit 2 ;;
    esac
done
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "install-pcp.sh:$missing not installed: needs apt-get and root; the tests that use it will skip" >&2
    exit 0
fi

# pcp's post-install script starts its services through systemctl and fails where systemd does not run (containers,
# small virtual machines): give it a deaf one. The tests start pmcd and pmproxy themselves, on loopback.
# apt hands package scripts a path of its own (DPkg::Path), not the caller's.
stub=""
path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
if [ ! -d /run/systemd/system ]; then
    stub=$(mktemp -d)
    printf '#!/bin/sh\nexit 0\n' > "$stub/systemctl"
    chmod +x "$stub/systemctl"
    chmod 755 "$stub"
    path="$stub:$path"
fi
export DEBIAN_FRONTEND=noninteractive

install() {
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends -o DPkg::Path="$path" $missing >/tmp/wattflow-install.log 2>&1
}
install || { apt-get update -qq >/dev/null 2>&1 && install; } ||
    echo "install-pcp.sh: apt could not install$missing (see /tmp/wattflow-install.log); the tests that use it will skip" >&2
[ -n "$stub" ] && rm -r "$stub"
exit 0
