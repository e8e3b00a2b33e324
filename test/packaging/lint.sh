#!/bin/sh
# Holds what is given away to the tools and schemas of those who take it: `make packaging`. No container engine, registry or desktop client runs here, so
# these are as far as one gets: compose's own loader, a linter of Dockerfiles, the bundle format's own unpacker and validator, the registry's own schema.
set -eu
cd "$(dirname "$0")"
root=$PWD/../..
dist=$root/build/dist
[ -x node_modules/.bin/mcpb ] || npm ci --ignore-scripts --no-audit --no-fund --loglevel=error || {
	echo "lint.sh: the linters cannot be installed: npm and its registry are needed once" >&2
	exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== compose.yaml: what compose makes of it"
(cd "$root/packaging" && go tool -modfile=../test/tools/go.mod cmd compose.yaml >"$work/compose.yaml")
(cd "$root/examples/cluster" && go tool -modfile=../../test/tools/go.mod cmd compose.yaml >"$work/cluster.yaml")
grep -q "ipv4_address: 10.0.0.12" "$work/cluster.yaml"
grep -q "context: $(cd "$root" && pwd)\$" "$work/compose.yaml" && grep -q "read_only: true" "$work/compose.yaml"

echo "== alerts: what Prometheus makes of them, and of the dashboard's expressions"
promtool=$(command -v promtool) || {
	(cd "$work" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb prometheus)
	promtool=$work/prometheus/usr/bin/promtool
}
(cd "$root/packaging/observability" && "$promtool" check rules caponier.rules.yml && "$promtool" test rules caponier.rules.test.yml)
{
	printf 'groups:\n- name: dashboard\n  rules:\n'
	grep '"expr": ' "$root/packaging/observability/caponier.dashboard.json" |
		awk '{ gsub(/[$]__rate_interval/, "5m"); sub(/^ *"expr": /, ""); sub(/,$/, "")
			printf "  - {record: panel%d, expr: %s}\n", NR, $0 }'
} >"$work/dashboard.yml"
"$promtool" check rules "$work/dashboard.yml" | grep -q ' [12][0-9] rules found'

echo "== Dockerfile: dockerfile-utils"
node_modules/.bin/dockerfile-utils lint "$root/packaging/Dockerfile"

sh image.sh
sh site.sh

echo "== the .mcpb bundle: mcpb unpacks and validates it, and its program starts"
node_modules/.bin/mcpb unpack "$dist"/caponier-[0-9]*.mcpb "$work/bundle"
node_modules/.bin/mcpb validate "$work/bundle/manifest.json"
"$work/bundle/server/caponier" --config "$work/bundle/server/config.toml" check --offline >"$work/check" || true # risks are not accepted there
grep -q '^FAIL  risks' "$work/check" && ! grep '^FAIL' "$work/check" | grep -v '^FAIL  risks'

echo "== server.json: the registry's schema"
registry=$(go mod download -json github.com/modelcontextprotocol/registry@v1.8.7 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cd "$root"
go run test/packaging/schema.go "$registry/internal/validators/schemas/2025-12-11.json" "$dist/server.json"

echo "== the .mcpb bundle of caponier-connect: a program for each of three systems, of which this one's starts"
test/packaging/node_modules/.bin/mcpb unpack "$dist"/caponier-connect-*.mcpb "$work/connect"
test/packaging/node_modules/.bin/mcpb validate "$work/connect/manifest.json"
grep -o 'server/caponier-connect[a-z.-]*' "$work/connect/manifest.json" | while read -r f; do test -s "$work/connect/$f"; done
go run test/packaging/programs.go "$work/connect/server" # as each system's loader reads them
CAPONIER_TOKEN=x "$work/connect/server/caponier-connect-linux" http://192.0.2.1/mcp </dev/null 2>"$work/connect.log" && exit 1
grep -q https "$work/connect.log"

echo "== the formula: what Homebrew would download and install on each system"
ruby -c packaging/caponier.rb >/dev/null
ruby test/packaging/formula.rb "$dist"

echo "== scripts: shellcheck"
shellcheck packaging/node/caponier-gate .ci/run packaging/linux/*.sh examples/lab/start.sh test/conformance/*.sh test/packaging/*.sh
