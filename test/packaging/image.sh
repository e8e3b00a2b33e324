#!/bin/sh
# Unpacks the OCI image of build/dist with umoci, and runs its entry point as its user, with no
# capability, on a root that cannot be written but for its volume: sh test/packaging/image.sh [DIR].
# Needs umoci, ruby, and for the run root with namespaces.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
dist=${1:-$root/build/dist}
arch=$(go env GOARCH)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
echo "== the image: umoci unpacks it, and its entry point runs as its user, who can write to the volume alone"
mkdir "$work/layout" "$work/archive"
tar -xf "$(ls "$dist"/caponier-*-linux-"$arch".oci.tar)" -C "$work/layout"
tag=$(sed -n 's/.*"org.opencontainers.image.ref.name":"\([^"]*\)".*/\1/p' "$work/layout/index.json")
set --
[ "$(id -u)" = 0 ] || set -- --rootless
umoci unpack "$@" --image "$work/layout:$tag" "$work/bundle"
image=$work/bundle/rootfs
of() { ruby -rjson -e 'puts JSON.parse(File.read(ARGV[0])).dig(*ARGV[1].split("."))' "$work/bundle/config.json" "$1"; }
test "$(of process.user.uid):$(of process.user.gid) $(of process.cwd)" = "65532:65532 /var/lib/caponier"
test "$(of process.args | tr '\n' ' ')" = "/caponier --config /etc/caponier/config.toml serve --http 0.0.0.0:8000 "
test "$(stat -c '%u:%g %a' "$image/var/lib/caponier")" = "65532:65532 700" || [ "$(id -u)" != 0 ]
test "$(grep -c 'BEGIN CERTIFICATE' "$image/etc/ssl/certs/ca-certificates.crt")" -gt 100

# what compose mounts, and its environment
tar -xzf "$(ls "$dist"/caponier-*-linux-"$arch".tar.gz)" -C "$work/archive" --strip-components=1
cmp "$work/archive/build/caponier" "$image/caponier"
diff -r "$work/archive/build/plugins" "$image/etc/caponier/build/plugins"
mkdir -p "$image/etc/caponier/policies" "$image/proc"
sed 's/^accept_risks = false/accept_risks = true/' "$work/archive/config.toml" >"$image/etc/caponier/config.toml"
printf '\n[[identity.principals]]\nid = "local"\n' >>"$image/etc/caponier/config.toml"
cp -r "$work/archive/policies/site" "$image/etc/caponier/policies/"
if [ "$(id -u)" != 0 ] || ! unshare --mount --pid --net true 2>/dev/null; then
	echo "not started: needs root and namespaces"
	[ "${CI-}" != true ] || exit 1
	exit 0
fi
chmod 755 "$work" "$work/bundle"
cat >"$work/inside.sh" <<'END'
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --bind "$1/var/lib/caponier" "$1/var/lib/caponier"
mount -o remount,bind,ro "$1"
ip link set lo up
# the image's own words, and its address on the loopback: no proxy with TLS stands before it here
run() { setpriv --no-new-privs --bounding-set=-all,+setuid,+setgid,+sys_chroot chroot --userspec=65532:65532 "$image" /caponier --config /etc/caponier/config.toml "$@"; }
image=$1
run check --offline >"$2/check" || { cat "$2/check"; exit 1; }
export CAPONIER_IDENTITY_HTTP=local
run serve --http 127.0.0.1:8000 >"$2/log" 2>&1 &
i=0
until run health 127.0.0.1:8000 >/dev/null 2>&1; do
	i=$((i + 1))
	[ $i -lt 240 ] && kill -0 $! || { cat "$2/log"; exit 1; }
	sleep 0.5
done
grep -qx 'CapEff:	0000000000000000' "$(grep -lx 'Name:	caponier' /proc/[0-9]*/status | head -n 1)"
END
sed -n 's/^ *\(CAPONIER_[A-Z_]*_DIR\|CAPONIER_REMOTE_WORKSPACE\): */\1=/p' "$root/packaging/compose.yaml" >"$work/env"
# shellcheck disable=SC2046 # one word for each line
env -i PATH="$PATH" $(cat "$work/env") unshare --mount --pid --net --fork --kill-child \
	--mount-proc sh -eu "$work/inside.sh" "$image" "$work"
grep -q '^ok .*will be created in /var/lib/caponier' "$work/check"
test -d "$image/var/lib/caponier/journal"
