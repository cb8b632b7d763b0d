#!/bin/sh
# install.sh [LIST...]: installs those Debian packages of the lists (default:
# packages.txt beside this script) that are missing. Does nothing, and needs no
# network, when all are there. No service is started, and no cluster of databases
# made, which the next boot would start.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- "$here/packages.txt"

missing() {
	sed -e 's/#.*//' "$@" | while read -r name; do
		[ -n "$name" ] || continue
		state=$(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null || true)
		case $state in ii*) ;; *) echo "$name" ;; esac
	done
}

want=$(missing "$@")
[ -n "$want" ] || exit 0
if [ "$(id -u)" != 0 ]; then
	echo "install.sh: missing packages, and only root can install them:" $want >&2
	exit 1
fi

# apt asks policy-rc.d before it starts a service; 101 means "do not".
policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.d
trap 'exit 1' INT TERM
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 0755 "$policy"
	ours=$policy
fi
mkdir -p "$clusters"
echo 'create_main_cluster = false' >"$clusters/moor.conf"
trap 'rm -f ${ours:-} "$clusters/moor.conf"; rmdir -p --ignore-fail-on-non-empty "$clusters"' EXIT

install_once() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update &&
		apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
			install -y --no-install-recommends $want </dev/null
}

echo "installing:" $want
install_once || {
	echo "install.sh: apt-get did not succeed, trying once more" >&2
	sleep 5
	dpkg --configure -a || true
	install_once
}
left=$(missing "$@")
[ -z "$left" ] || { echo "install.sh: still missing:" $left >&2; exit 1; }
