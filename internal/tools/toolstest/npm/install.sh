#!/bin/sh
# Installs what the integration tests need into a cache directory, at fixed versions: MCP servers, clients and the
# conformance suite, and the browser driver. Does nothing if they are installed. Usage: install.sh DIR
set -eu
dir=${1:?usage: install.sh DIR}
pins='node@22.23.3
@modelcontextprotocol/server-everything@2026.8.31
@modelcontextprotocol/server-filesystem@2026.8.31
@modelcontextprotocol/server-memory@2026.8.31
@modelcontextprotocol/server-sequential-thinking@2026.8.31
@cyanheads/git-mcp-server@2.15.3
mcp-server-sqlite-npx@0.8.0
pyright@1.1.407
@modelcontextprotocol/conformance@0.2.0-alpha.12
@modelcontextprotocol/inspector@2.12.0
@modelcontextprotocol/sdk@1.32.2
@modelcontextprotocol/client@2.4.0
playwright-core@1.65.1
axe-core@4.14.1'
mkdir -p "$dir"
cd "$dir"
if [ -f installed ] && [ "$(cat installed)" = "$pins" ]; then exit 0; fi
rm -f installed
[ -f package.json ] || echo '{"private": true}' > package.json
# shellcheck disable=SC2086 # one word per package
npm install --no-audit --no-fund --no-save --loglevel=error $pins
printf '%s' "$pins" > installed
