#!/bin/sh
# Runs every command of VERIFY.md on what `make dist` made, signed with a key of this run, and then
# on files that were changed, which must fail: sh test/packaging/verify.sh [DIR]. With REBUILD=1 also
# the block that builds everything again from the commit.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "${1:-$root/build/dist}" "$work/files"
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
mini=
if command -v minisign >/dev/null; then
	minisign -G -W -p "$work/files/caponier.pub" -s "$work/mini" >/dev/null
	mini=$work/mini
fi
make -s -C "$root" sign KEY="$work/key" MINISIGN_KEY="$mini" DIR="$work/files"
echo "caponier $(cut -d ' ' -f 1,2 "$work/key.pub")" >"$work/files/allowed_signers"

# script prints the blocks of VERIFY.md, but for those whose word is among the arguments.
script() {
	awk -v "not= $* " '
		/^```sh/ { on = index(not, " " $2 " ") == 0 || $2 == ""; next }
		/^```/ { on = 0 }
		on' "$work/files/VERIFY.md"
}
skip=rebuild
[ "${REBUILD-}" != 1 ] || skip=
for word in dpkg-deb:deb rpm2cpio:rpm cpio:rpm minisign:minisign; do
	command -v ${word%:*} >/dev/null && continue
	[ "${CI-}" != true ] || { echo "verify.sh: ${word%:*} is not here" >&2; exit 1; }
	skip="$skip ${word#*:}"
done
(cd "$work/files" && script "$skip" >"$work/all" && grep -q 'ssh-keygen' "$work/all" &&
	SOURCES=$root sh -eu "$work/all")
echo "VERIFY.md: $(grep -c . "$work/all") commands held"

# fails runs the blocks again after a change that they must see.
fails() {
	rm -rf "$work/changed" && cp -r "${1:-$root/build/dist}" "$work/changed"
	cp "$work/files/SHA256SUMS.sig" "$work/files/allowed_signers" "$work/changed"
	[ -z "$mini" ] || cp "$work/files/SHA256SUMS.minisig" "$work/files/caponier.pub" "$work/changed"
	(cd "$work/changed" && eval "$2") >/dev/null
	if (cd "$work/changed" && sh -eu "$work/all") >/dev/null 2>&1; then
		echo "verify.sh: VERIFY.md does not see: $2" >&2
		exit 1
	fi
}
seen=0
# shellcheck disable=SC2016
for change in 'echo >>provenance.json' \
	'echo >>provenance.json; sha256sum $(cut -c 67- SHA256SUMS) >sums; mv sums SHA256SUMS' \
	'ssh-keygen -q -t ed25519 -N "" -f k; rm SHA256SUMS.sig; ssh-keygen -q -Y sign -n file -f k SHA256SUMS' \
	'rm SHA256SUMS.sig' \
	'rm -f SHA256SUMS.minisig; minisign -G -W -p other.pub -s other && minisign -S -s other -m SHA256SUMS' \
	'rm -f SHA256SUMS.minisig caponier.pub'; do
	[ -n "$mini" ] || case $change in *minisig*) continue ;; esac
	fails "${1:-}" "$change"
	seen=$((seen + 1))
done
echo "VERIFY.md: $seen changes were seen"
