#!/bin/sh
# Builds a third-party Go program at a given version, with the dependencies that the program itself requires.
# Does nothing if OUT already has that version. Usage: build-at.sh OUT MODULE VERSION [PACKAGE]
set -eu
out=${1:?usage: build-at.sh OUT MODULE VERSION [PACKAGE]} module=${2:?} version=${3:?} package=${4:-$2}
if [ -x "$out" ] && [ "$(cat "$out.version" 2>/dev/null)" = "$module $version" ]; then
	touch "$out"
	exit 0
fi
echo "build $out ($module $version; takes minutes the first time)"
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# Build in a module that requires the program. `go install` would also ask for the latest version, to check
# for deprecation, and some proxies serve exact versions only.
cd "$dir"
printf 'module build\n\ngo 1.26.0\n\nrequire %s %s\n' "$module" "$version" >go.mod
CGO_ENABLED=0 go build -mod=mod -trimpath -ldflags '-s -w' -o "$out" "$package"
printf '%s %s' "$module" "$version" >"$out.version"
