#!/bin/sh
# Slurm and munge from Debian's packages, for tests that start their own daemons. Their install scripts call systemctl; where there is
# none (containers), a stub stands in while they run.
set -e
command -v slurmctld >/dev/null 2>&1 && command -v munged >/dev/null 2>&1 && exit 0
command -v apt-get >/dev/null 2>&1 || { echo "no apt-get: install slurmctld, slurmd, slurm-client and munge yourself" >&2; exit 0; }
[ "$(id -u)" = 0 ] || { echo "not root: install slurmctld, slurmd, slurm-client and munge yourself" >&2; exit 0; }
stub=$(mktemp -d)
trap 'rm -rf "$stub"' EXIT
if ! command -v systemctl >/dev/null 2>&1; then
    printf '#!/bin/sh\nexit 0\n' >"$stub/systemctl"
    chmod +x "$stub/systemctl"
fi
PATH="$PATH:$stub" DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge
