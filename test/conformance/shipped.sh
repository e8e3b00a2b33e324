#!/bin/sh
# Serves the shipped plugins on stdio, without any node: the inspector takes a command without arguments.
cd "$(dirname "$0")" && exec ../../build/caponier --config shipped.toml serve 2>/dev/null
