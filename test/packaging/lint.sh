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
grep -q "context: $(cd "$root" && pwd)\$" "$work/compose.yaml" && grep -q "read_only: true" "$work/compose.yaml"

echo "== Dockerfile: dockerfile-utils"
node_modules/.bin/dockerfile-utils lint "$root/packaging/Dockerfile"

echo "== the .mcpb bundle: mcpb unpacks and validates it, and its program starts"
node_modules/.bin/mcpb unpack "$dist"/caponier-*.mcpb "$work/bundle"
node_modules/.bin/mcpb validate "$work/bundle/manifest.json"
"$work/bundle/server/caponier" --config "$work/bundle/server/config.toml" check --offline >"$work/check" || true # risks are not accepted there
grep -q '^FAIL  risks' "$work/check" && ! grep '^FAIL' "$work/check" | grep -v '^FAIL  risks'

echo "== server.json: the registry's schema"
registry=$(go mod download -json github.com/modelcontextprotocol/registry@v1.8.7 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cd "$root"
go run test/packaging/schema.go "$registry/internal/validators/schemas/2025-12-11.json" "$dist/server.json"

echo "== scripts: shellcheck"
shellcheck packaging/node/caponier-gate .ci/run test/conformance/*.sh test/packaging/*.sh
