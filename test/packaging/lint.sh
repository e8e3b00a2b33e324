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

echo "== the image's last stage, put together without an engine: it holds all that the program needs, for its user, who can write to the volume alone"
mkdir -p "$work/archive" "$work/image/etc/caponier/policies" "$work/image/tmp"
tar -xzf "$dist"/caponier-*.tar.gz -C "$work/archive" --strip-components=1
mkdir -p "$work/archive/state"
sed -n 's/^COPY --from=build \(--[a-z]*=[^ ]* \)*\/image\/\([^ ]*\) \([^ ]*\)$/\2 \3/p' "$root/packaging/Dockerfile" >"$work/copies"
test "$(wc -l <"$work/copies")" = "$(grep -c '^COPY --from=build.* /image/' "$root/packaging/Dockerfile")"
while read -r from to; do
	mkdir -p "$(dirname "$work/image$to")"
	cp -r "$work/archive/$from" "$work/image$to"
done <"$work/copies"
cp "$work/archive/config.toml" "$work/image/etc/caponier/" # what compose mounts
cp -r "$work/archive/policies/site" "$work/image/etc/caponier/policies/"
if [ "$(id -u)" = 0 ]; then
	chmod 755 "$work" && chown 65532:65532 "$work/image/var/lib/caponier" && chmod 0700 "$work/image/var/lib/caponier"
	sed -n 's/^ *\(CAPONIER_[A-Z_]*_DIR\|CAPONIER_REMOTE_WORKSPACE\): */\1=/p' "$root/packaging/compose.yaml" >"$work/env"
	# shellcheck disable=SC2046 # one word for each line
	env -i I_ACCEPT_RISKS=true $(cat "$work/env") /usr/sbin/chroot --userspec=65532:65532 "$work/image" /caponier --config /etc/caponier/config.toml check --offline >"$work/check" || { cat "$work/check"; exit 1; }
	grep -q '^ok .*will be created in /var/lib/caponier' "$work/check"
else
	echo "not started: only root can make it its file system"
fi

echo "== the .mcpb bundle: mcpb unpacks and validates it, and its program starts"
node_modules/.bin/mcpb unpack "$dist"/caponier-*.mcpb "$work/bundle"
node_modules/.bin/mcpb validate "$work/bundle/manifest.json"
"$work/bundle/server/caponier" --config "$work/bundle/server/config.toml" check --offline >"$work/check" || true # risks are not accepted there
grep -q '^FAIL  risks' "$work/check" && ! grep '^FAIL' "$work/check" | grep -v '^FAIL  risks'

echo "== server.json: the registry's schema"
registry=$(go mod download -json github.com/modelcontextprotocol/registry@v1.8.7 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cd "$root"
go run test/packaging/schema.go "$registry/internal/validators/schemas/2025-12-11.json" "$dist/server.json"

echo "== caponier-connect: compiles for other systems"
GOOS=windows go build -o "$work/connect.exe" ./client/cmd/connect
GOOS=darwin GOARCH=arm64 go vet ./client/cmd/connect ./client/connect

echo "== scripts: shellcheck"
shellcheck packaging/node/caponier-gate .ci/run packaging/linux/*.sh examples/lab/start.sh test/conformance/*.sh test/packaging/*.sh
