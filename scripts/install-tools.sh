#!/bin/sh
# Installs outside programs that tests use, where apt can and only what is missing.
#
#   scripts/install-tools.sh NAME…   of: pcp stress-ng verilator chromium openssl postgres slurm podman
#
# Without apt, root or network it says what is missing and ends with 0: the tests that need it skip by name. With
# WATTFLOW_REQUIRE=1, where no test may skip, it ends with 1.
set -u

here() { # whether a tool is here
    case "$1" in
        pcp) [ "$(dpkg-query -W -f '${Status}' pcp 2>/dev/null)" = "install ok installed" ] ;;
        stress-ng | openssl | podman) command -v "$1" ;;
        verilator) command -v verilator && command -v g++ && command -v make ;;
        chromium) command -v chromium || command -v chromium-browser || command -v google-chrome ;;
        postgres) command -v postgres || ls /usr/lib/postgresql/*/bin/postgres ;;
        slurm) command -v slurmctld && command -v slurmd && command -v sbatch && command -v munged &&
            command -v slurmdbd && command -v mariadbd ;;
        *) false ;;
    esac >/dev/null 2>&1
}

packages() { # what Debian calls it
    case "$1" in
        verilator) echo verilator g++ make ;;
        postgres) echo postgresql ;;
        slurm) echo slurmctld slurmd slurm-client munge slurmdbd mariadb-server-core ;;
        pcp | stress-ng | chromium | openssl | podman) echo "$1" ;;
        *) echo "install-tools.sh: knows no $1" >&2; exit 2 ;;
    esac
}

missing() { for tool in "$@"; do here "$tool" || printf ' %s' "$tool"; done; }

for tool in "$@"; do packages "$tool" >/dev/null; done
wanted=$(missing "$@")
[ -z "$wanted" ] && exit 0

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    # Install scripts start services through systemctl and fail where systemd does not run (containers, small virtual
    # machines): give them a deaf one. apt hands them a path of its own (DPkg::Path), not the caller's.
    stub=$(mktemp -d)
    path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    if [ ! -d /run/systemd/system ]; then
        printf '#!/bin/sh\nexit 0\n' > "$stub/systemctl"
        chmod 755 "$stub" "$stub/systemctl"
        path="$stub:$path"
    fi
    log=$(mktemp -t wattflow-install.XXXXXX)
    names=$(for tool in $wanted; do packages "$tool"; done)
    install() {
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Path="$path" $names
    }
    { install || { apt-get update -qq && install; }; } > "$log" 2>&1 && rm -f "$log"
    rm -r "$stub"
    [ -f "$log" ] && echo "install-tools.sh: apt failed; $log has its words" >&2
fi

# shellcheck disable=SC2086
still=$(missing $wanted)
[ -z "$still" ] && exit 0
echo "install-tools.sh: not here and not installed (needs apt-get, root and a network):$still" >&2
[ "${WATTFLOW_REQUIRE:-}" != 1 ]
