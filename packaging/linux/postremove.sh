#!/bin/sh
# After a package was removed. /etc/caponier and /var/lib/caponier stay, also at a purge: they hold
# your policy, the key of your nodes and the journal, which says who did what. So does their account.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
