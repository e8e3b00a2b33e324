#!/bin/sh
# Runs the official MCP conformance suite, both TypeScript clients beside the Go client, and the inspector against this host: `make conformance`. The fixtures are a Wasm plugin (plugin/), called through policy and
# journal like any other; only what plugins may never have (sampling, roots, logging) is native, in a build that nobody else uses (tag conformance).
set -eu
cd "$(dirname "$0")/../.."
out=build/conformance
rm -rf "$out/journal" "$out/store"
mkdir -p "$out/plugins"
chmod go-w test/conformance/*.toml 
CGO_ENABLED=0 GOOS=wasip1 GOARCH=wasm go build -trimpath -buildvcs=false -ldflags="-s -w" -buildmode=c-shared -o "$out/plugins/conformance.wasm" ./test/conformance/plugin
go build -tags conformance -trimpath -o "$out/caponier" ./host/cmd/caponier
host="$out/caponier --config test/conformance/config.toml"
$host plugin lock --dir "$out/plugins" --lock "$out/plugins.lock"
$host serve --http 127.0.0.1:0 2>"$out/serve.log" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
url=
for _ in $(seq 100); do
	url=$(sed -n 's/.*url=\(http[^ ]*\).*/\1/p' "$out/serve.log")
	[ -z "$url" ] || break
	kill -0 "$server" 2>/dev/null || break
	sleep 0.1
done
[ -n "$url" ] || { echo "conformance.sh: the host did not start:" >&2; cat "$out/serve.log" >&2; exit 1; }
test/conformance/run.sh "$url"
kill "$server"
wait "$server"
$host audit verify
make -s all
build/caponier plugin lock --dir build/plugins --lock "$out/shipped.lock"
go test -count=1 -tags conformance ./test/conformance
