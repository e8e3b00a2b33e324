#!/bin/sh
# After a package was installed or upgraded: the account, and the modes of its directories. Nothing
# is started before there is a configuration; a server that runs is started again as the new version.
set -e
if ! getent group caponier >/dev/null; then
	groupadd --system caponier
fi
if ! getent passwd caponier >/dev/null; then
	useradd --system --gid caponier --home-dir /var/lib/caponier --no-create-home \
		--shell /usr/sbin/nologin caponier
fi
# The server reads its configuration and never writes it.
chown root:caponier /etc/caponier
chmod 0750 /etc/caponier
chown caponier:caponier /var/lib/caponier
chmod 0700 /var/lib/caponier
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl try-restart caponier.service || true
fi
