#!/bin/bash
# debian.sh ARCH DIR PACKAGE...: unpacks packages of Debian 12 for ARCH, amd64 or arm64, and all that
# they depend on, into DIR, as they are in Debian's archive: nothing of this machine's own packages
# is taken, and nothing is installed. No script of a package runs. MIRROR is where the archive is.
set -euo pipefail
arch=$1 dir=$(realpath -m "$2")
shift 2
mirror=${MIRROR:-http://deb.debian.org}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{state/lists/partial,cache/archives/partial,etc}
: >"$work/status"
for suite in debian/bookworm debian/bookworm-updates debian-security/bookworm-security; do
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror/${suite%/*} ${suite#*/} main"
done >"$work/etc/sources.list"

# With no package installed apt gets all that the packages depend on.
apt() {
	apt-get -q -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::Etc::SourceList="$work/etc/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::Languages=none "$@"
}
apt update
apt install -y --download-only --no-install-recommends "$@"

rm -rf "$dir"
mkdir -p "$dir"/var/lib/dpkg/{info,status.d}
for package in "$work"/cache/archives/*.deb; do
	name=$(dpkg-deb -f "$package" Package)
	dpkg-deb -x "$package" "$dir"
	dpkg-deb -f "$package" >"$dir/var/lib/dpkg/status.d/$name"
	dpkg-deb --fsys-tarfile "$package" | tar -t >"$dir/var/lib/dpkg/info/$name.list"
done
