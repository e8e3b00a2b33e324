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
make -s -C "$root" sign KEY="$work/key" DIR="$work/files"
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
for word in dpkg-deb:deb rpm2cpio:rpm cpio:rpm; do
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
	(cd "$work/changed" && eval "$2")
	if (cd "$work/changed" && sh -eu "$work/all") >/dev/null 2>&1; then
		echo "verify.sh: VERIFY.md does not see: $2" >&2
		exit 1
	fi
}
# shellcheck disable=SC2016
for change in 'echo >>provenance.json' \
	'echo >>provenance.json; sha256sum $(cut -c 67- SHA256SUMS) >sums; mv sums SHA256SUMS' \
	'ssh-keygen -q -t ed25519 -N "" -f k; rm SHA256SUMS.sig; ssh-keygen -q -Y sign -n file -f k SHA256SUMS' \
	'rm SHA256SUMS.sig'; do
	fails "${1:-}" "$change"
done
echo "VERIFY.md: 4 changes were seen"
