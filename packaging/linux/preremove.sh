#!/bin/sh
# Before a package is removed. An upgrade (deb: "upgrade", rpm: 1) leaves the server running.
set -e
if [ "$1" = remove ] || [ "$1" = 0 ]; then
	if [ -d /run/systemd/system ]; then
		systemctl disable --now caponier.service || true
	fi
fi
