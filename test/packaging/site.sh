#!/bin/sh
# Makes the site, twice the same, searches it in a browser without a server, and shows that a link to
# nothing and a misspelt word are found: sh test/packaging/site.sh. Needs chromium and codespell.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
site() { go -C packaging/tools run ./site -root "$1" -out "$2"; }
echo "== the site: every link leads somewhere, every word is spelt right"
make -s spelling
make -s site
site "$root" "$work/again" >/dev/null
diff -r build/site "$work/again"
grep -q 'caponier uninstall \[DIR\]' build/site/docs/reference/cli.html
grep -q 'caponier_decisions_total' build/site/docs/reference/metrics.html
# what packaging/observability asks for is in the reference
grep -oh 'caponier_[a-z_]*' packaging/observability/caponier.rules.yml | sed 's/_bucket$//; s/_sum$//; s/_count$//' | sort -u | while read -r m; do
	grep -q "<code>$m</code>" build/site/docs/reference/metrics.html || [ "$m" = caponier_ ] || { echo "no $m"; exit 1; }
done
test "$(find build/site/docs/clients -name '*.html' | wc -l)" = 10
[ "$(grep -c '<tr>' build/site/docs/reference/errors.html)" -gt 40 ]

echo "== the search: in a browser, from files"
browser=$(command -v chromium || command -v chromium-browser)
"$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --virtual-time-budget=5000 \
	--dump-dom "file://$root/build/site/search.html?q=changed+host+key" >"$work/dom" 2>"$work/log"
grep -q 'docs/procedures.html#a-nodes-changed-host-key' "$work/dom" || { cat "$work/log"; exit 1; }
grep -o '[0-9]* sections' "$work/dom"

echo "== what is wrong is found"
mkdir "$work/tree" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/tree"
mkdir "$work/tree/build" && cp build/caponier "$work/tree/build/"
for link in 'none.md' 'policy.md#no-such-heading' 'pictures/none.png'; do
	cp docs/glossary.md "$work/tree/docs/"
	echo "[x]($link)" >>"$work/tree/docs/glossary.md"
	if site "$work/tree" "$work/broken" >"$work/out" 2>&1 || ! grep -q 'docs/glossary.md: ' "$work/out"; then
		cat "$work/out"
		exit 1
	fi
done
echo 'The adress of teh host.' >"$work/bad.md"
! codespell "$work/bad.md" >/dev/null || exit 1
