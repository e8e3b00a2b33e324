#!/bin/sh
# bare.sh COMMAND runs a command where no programs are found but Go, git, make and the essential
# packages of Debian: there, each test must pass, or skip what it cannot do.
set -e
bin=$(mktemp -d)
chmod 755 "$bin"
trap 'rm -rf "$bin"' EXIT
for file in $(dpkg-query -W -f '${Essential} ${Package}\n' | sed -n 's/^yes //p' | xargs dpkg -L |
	grep -E '^(/usr)?/s?bin/[^/]+$') "$(command -v git)" "$(command -v make)" /bin/sh; do
	test ! -x "$file" || ln -sf "$file" "$bin"
done
env -u CI -u LANG -u LC_ALL PATH="$bin:$(go env GOROOT)/bin" "$@"
