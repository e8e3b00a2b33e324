#!/bin/sh
# Installs the .deb of build/dist on a clean Debian, in namespaces of its own: the files' modes, the
# unit's command as its user, `caponier init` and a node behind its own sshd, up to the first answer;
# an upgrade over the running server, and a removal: sh test/packaging/cleanroot.sh. Needs root and
# mmdebstrap (with Debian's archive, once: build/cleanroot.tar is kept).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null || ! unshare -mpn true 2>/dev/null; then
	echo "cleanroot.sh: not run: needs root, mmdebstrap and namespaces"
	[ "${CI-}" != true ] || exit 1
	exit 0
fi
[ -e build/cleanroot.tar ] || {
	mmdebstrap -q --variant=minbase --include=openssh-server,openssh-client \
		--dpkgopt='path-exclude=/usr/share/locale/*' bookworm build/cleanroot.new.tar
	mv build/cleanroot.new.tar build/cleanroot.tar
}
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
tar -xf build/cleanroot.tar -C "$work" --exclude='./dev/*'
cp build/dist/caponier-*.deb "$work/root/caponier.deb"
# the same package for another machine, and as an older version
dpkg-deb -R "$work/root/caponier.deb" "$work/root/package"
control=$work/root/package/DEBIAN/control
cp "$control" "$work/root/control"
sed 's/^Architecture: .*/Architecture: riscv64/' "$work/root/control" >"$control"
dpkg-deb -Znone -b "$work/root/package" "$work/root/wrong.deb" >/dev/null
sed 's/^Version: .*/Version: 0.0.0~older/' "$work/root/control" >"$control"
dpkg-deb -Znone -b "$work/root/package" "$work/root/older.deb" >/dev/null
rm -r "$work/root/package"
cp test/packaging/inside.sh "$work/root/"
mkdir -p "$work/run/sshd"
# shellcheck disable=SC2016
# A mount namespace of its own: what is mounted is gone with it. No network but a loopback.
unshare --mount --pid --net --uts --fork --kill-child sh -eu -c '
	mount --make-rprivate /
	mount --bind "$1" "$1"
	mount -t proc proc "$1/proc"
	mount -t tmpfs -o mode=0755 dev "$1/dev"
	for d in null zero full random urandom tty; do touch "$1/dev/$d"; mount --bind "/dev/$d" "$1/dev/$d"; done
	ln -s /proc/self/fd "$1/dev/fd"
	ln -s /proc/self/fd/0 "$1/dev/stdin"
	ip link set lo up
	exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$1" sh -eu /root/inside.sh' sh "$work"
