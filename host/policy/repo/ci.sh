#!/bin/sh
# What a CI runs for this policy: opa check, fmt and test, and core's look at data.yaml. Written by
# `caponier policy export`, which also renews it. OPA names another opa than the one in PATH.
set -eu
cd "$(dirname "$0")"
opa=${OPA:-opa}

# opa fmt says nothing of why it fails.
unformatted=$("$opa" fmt -l site)
test -z "$unformatted" || { echo "not formatted: $unformatted (opa fmt -w site)"; exit 1; }

"$opa" check --strict --capabilities capabilities.json -s schemas core testing site

# Keys and types of data.yaml, then what is wrong with it beyond its schema.
for rule in 'json.match_schema(data.site, input)[1][_].error' 'data.caponier.core.lint.problems[_]'
do
	found=$("$opa" eval --format raw -i schemas/site.schema -d . "[p | p = $rule]")
	test "$found" = "[]" || { echo "data.yaml: $found"; exit 1; }
done

"$opa" test --timeout 60s .
