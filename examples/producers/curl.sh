#!/bin/sh
# Submit tasks over HTTP with curl: in the three modes of CloudEvents, and as plain JSON.
# CODEFLEET_URL and CODEFLEET_TOKEN select the fleet; CODE is the program.
set -eu
url=${CODEFLEET_URL:-http://127.0.0.1:8787}
code=$(printf %s "${CODE:-print(6*7)}" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' | awk '{printf "%s%s", n, $0; n = "\\n"}') # escaped for JSON
run=$(date +%s)-$$ # part of the ids, so that each run of this script submits new tasks

post() { # PATH CURL-ARGUMENT...
	path=$1
	shift
	curl --silent --show-error --fail-with-body -H "Authorization: Bearer ${CODEFLEET_TOKEN:-}" "$@" "$url$path"
	echo
}

echo "# binary: attributes are headers; wait for the result"
post '/v1/events?wait=30s' -H 'ce-specversion: 1.0' -H 'ce-type: codefleet.task.v1' -H 'ce-source: /examples/curl' -H "ce-id: $run-1" \
	-H 'Content-Type: application/json' -d "{\"code\": \"$code\"}"

echo "# structured: the event is the body"
post '/v1/events?wait=30s' -H 'Content-Type: application/cloudevents+json' -d "{\"specversion\": \"1.0\", \"type\": \"codefleet.task.v1\",
	\"source\": \"/examples/curl\", \"id\": \"$run-2\", \"data\": {\"code\": \"$code\"}}"

echo "# batch: the response has one item per event"
post /v1/events -H 'Content-Type: application/cloudevents-batch+json' -d "[{\"specversion\": \"1.0\", \"type\": \"codefleet.task.v1\",
	\"source\": \"/examples/curl\", \"id\": \"$run-3\", \"data\": {\"code\": \"$code\"}}]"

echo "# plain JSON; the key makes the request safe to repeat"
post '/v1/tasks?wait=30s' -H 'Content-Type: application/json' -H "Idempotency-Key: $run-4" -d "{\"code\": \"$code\"}"
