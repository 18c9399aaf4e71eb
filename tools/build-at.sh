#!/bin/sh
# Builds a Go program of others at a pinned version, with the dependencies that it pins itself. Run
# again with the same version it does nothing. usage: build-at.sh OUT MODULE VERSION [PACKAGE]
set -eu
out=${1:?usage: build-at.sh OUT MODULE VERSION [PACKAGE]} module=${2:?} version=${3:?} package=${4:-$2}
if [ -x "$out" ] && [ "$(cat "$out.version" 2>/dev/null)" = "$module $version" ]; then
	touch "$out"
	exit 0
fi
echo "build $out ($module $version; minutes the first time)"
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# A module that requires it, instead of `go install`: some proxies answer to exact versions only, and
# go install asks for the newest one to see whether that deprecates this.
cd "$dir"
printf 'module build\n\ngo 1.26.0\n\nrequire %s %s\n' "$module" "$version" >go.mod
CGO_ENABLED=0 go build -mod=mod -trimpath -ldflags '-s -w' -o "$out" "$package"
printf '%s %s' "$module" "$version" >"$out.version"
