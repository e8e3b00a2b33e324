#!/bin/sh
# What cleanroot.sh runs on the clean Debian, as root, in namespaces of its own.
set -eu
cd /root
say() { echo "== clean root: $*"; }
is() { # FILE OWNER:GROUP MODE
	[ "$(stat -c '%U:%G %a' "$1")" = "$2 $3" ] || { stat "$1"; exit 1; }
}
holds() { # FILE TEXT
	grep -qF -- "$2" "$1" || { echo "no \"$2\" in:"; cat "$1"; exit 1; }
}

say "a package for another machine is refused, and leaves nothing"
if dpkg -i wrong.deb >dpkg.log 2>&1; then exit 1; fi
holds dpkg.log "does not match system"
[ ! -e /usr/bin/caponier ] && [ ! -e /etc/caponier ] && ! getent passwd caponier >/dev/null

say "install"
begin=$(date +%s)
dpkg -i caponier.deb >dpkg.log 2>&1 || { cat dpkg.log; exit 1; }
is /etc/caponier root:caponier 750
is /var/lib/caponier caponier:caponier 700
is /usr/lib/caponier/build/caponier root:root 755
test "$(getent passwd caponier | cut -d: -f6,7)" = /var/lib/caponier:/usr/sbin/nologin
test -e /usr/share/man/man1/caponier-policy-check.1.gz || holds /etc/dpkg/dpkg.cfg.d/* man
caponier version

say "a node: this machine's sshd, with Proxmox's commands"
/usr/lib/caponier/build/pvelab install --state /root/lab --root / --effects /root/effects /root/pve
for p in /root/pve/*; do ln -s "$p" /usr/sbin/; done
mkdir -p -m 700 .ssh
ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519
cp .ssh/id_ed25519.pub .ssh/authorized_keys
[ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -A >/dev/null
/usr/sbin/sshd
echo "127.0.0.1 $(cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub)" >.ssh/known_hosts
pin=$(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d ' ' -f 2)

say "init, by root, for the server's account"
caponier init /etc/caponier --for caponier --node pve1=127.0.0.1 --host-key "$pin" --accept-risks \
	>init.log 2>&1 </dev/null || { cat init.log; exit 1; }
is /etc/caponier/config.toml root:caponier 640
is /etc/caponier/secrets/id_ed25519 caponier:caponier 600
holds init.log "0 failed"
say "the line that it prints lets the key in, and changes nothing the second time"
grep '^tar -cC ' init.log >line.sh
# each program of the line fails once: the node takes no key, and what is there is whole
mkdir -p refuse
for step in mktemp tar install mkdir; do
	printf '#!/bin/sh\necho "%s: refused" >&2\nexit 1\n' $step >refuse/$step
	chmod 755 refuse/$step
	sed "s|root@127.0.0.1 '|&PATH=/root/refuse:\$PATH; |" line.sh >refused.sh
	if sh -eu refused.sh >refused.log 2>&1; then echo "no error of $step"; exit 1; fi
	holds refused.log "$step: refused"
	[ ! -e .ssh/authorized_keys2 ] || { echo "$step: a key"; exit 1; }
	rm refuse/$step
done
sh -eu line.sh
is /usr/local/sbin/caponier-gate root:root 755
cp .ssh/authorized_keys2 keys.before
echo "# mine" >>/usr/local/sbin/caponier-gate
sh -eu line.sh
cmp .ssh/authorized_keys2 keys.before
tail -n 1 /usr/local/sbin/caponier-gate | grep -q mine
as="runuser -u caponier --"
$as caponier --config /etc/caponier/config.toml check >check.log 2>&1 || { cat check.log; exit 1; }

say "the unit's command, as its user, with what of its restrictions a namespace has"
unit=/usr/lib/systemd/system/caponier.service
command=$(sed -n 's/^ExecStart=//p' $unit)
cat >serve.sh <<END
mount --make-rprivate / && for d in /usr /etc /root; do mount --bind \$d \$d; mount -o remount,bind,ro \$d; done
cd /var/lib/caponier && umask $(sed -n 's/^UMask=//p' $unit)
exec setpriv --reuid caponier --regid caponier --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all env -i PATH=/usr/bin:/bin HOME=/var/lib/caponier $command
END
serve() {
	unshare --mount sh -eu serve.sh >serve.log 2>&1 &
	server=$!
	i=0
	until caponier --config /etc/caponier/config.toml health 127.0.0.1:8000 >health.log 2>&1; do
		i=$((i + 1))
		if [ $i -gt 240 ] || ! kill -0 $server; then cat serve.log; exit 1; fi
		sleep 0.5
	done
}
token=$($as caponier --config /etc/caponier/config.toml token new local 2>/dev/null)
serve
test -n "$token"

say "the first answer"
$as env HOME=/var/lib/caponier caponier --config /etc/caponier/config.toml call proxmox_list_containers >answer.log 2>&1 || { cat answer.log; exit 1; }
holds answer.log web01
echo "answer after $(($(date +%s) - begin)) s"
if $as caponier --config /etc/caponier/config.toml call proxmox_stop_container '{"vmid":101}' >refused.log 2>&1; then
	echo "a change was not refused"; exit 1
fi
if grep '"pct","stop"' effects; then exit 1; fi

say "without the capability for a low port: an error that says so"
if setpriv --reuid caponier --regid caponier --clear-groups --bounding-set=-all caponier --config /etc/caponier/config.toml serve --http 127.0.0.1:80 >port.log 2>&1; then exit 1; fi
holds port.log "permission denied"

say "an upgrade over the running server, a downgrade, and a removal, keep what is yours"
find /etc/caponier /var/lib/caponier/journal -type f -exec sha256sum {} + | sort >before
kill -0 $server
dpkg -i caponier.deb >dpkg.log 2>&1 || { cat dpkg.log; exit 1; }
is /etc/caponier root:caponier 750
kill $server
wait $server || true
serve
dpkg -i older.deb >dpkg.log 2>&1 || { cat dpkg.log; exit 1; }
holds dpkg.log downgrading
is /etc/caponier root:caponier 750
is /var/lib/caponier caponier:caponier 700
kill $server
wait $server || true
serve
kill $server
wait $server || true

say "uninstall takes the key off the node, and keeps what was changed"
caponier uninstall /etc/caponier --yes >uninstall.log 2>&1 || { cat uninstall.log; exit 1; }
grep '^tar -cC ' uninstall.log >unline.sh
sh -eu unline.sh
if grep -q caponier .ssh/authorized_keys2; then exit 1; fi
tail -n 1 /usr/local/sbin/caponier-gate | grep -q mine # somebody changed it
sh -eu unline.sh # twice is as once
cp /usr/lib/caponier/packaging/node/caponier-gate /usr/local/sbin/caponier-gate
sh -eu unline.sh
[ ! -e /usr/local/sbin/caponier-gate ]
[ ! -e /etc/caponier/config.toml ] && [ -d /var/lib/caponier/journal ]
grep -v '/etc/caponier/' before >kept && mv kept before
dpkg --purge caponier >dpkg.log 2>&1 || { cat dpkg.log; exit 1; }
[ ! -e /usr/bin/caponier ] && [ ! -e /usr/lib/caponier ]
cut -c 67- before | while read -r f; do test -s "$f"; done
say "done"
