#!/bin/sh
# Starts the simulated nodes in build/lab: their configuration, their site (yours to edit), their
# journal. Run it where build/ is, in a checkout after `make all build/pvelab`, or in the archive.
set -eu
lab=build/lab
mkdir -p $lab
pid=$(cat $lab/pid 2>/dev/null || true)
if [ -n "$pid" ] && grep -qs pvelab "/proc/$pid/cmdline"; then kill "$pid"; fi
[ -d $lab/site ] || cp -r examples/lab/site $lab/site
build/pvelab --state $lab --site $lab/site --lock plugins.lock --plugins build/plugins \
	--effects $lab/effects.jsonl --write-config $lab/config.toml >$lab/ready 2>&1 &
pid=$!
echo $pid >$lab/pid
until grep -qs ready $lab/ready; do
	kill -0 $pid 2>/dev/null || { cat $lab/ready; exit 1; }
	sleep 0.1
done
echo "pve1 and pve2 are simulated, with guests 101 to 112; \`kill $pid\` ends them"
