#!/bin/sh
# make demo: start a fleet in a fresh directory, run a task through each interface, and stop the fleet.
# It needs only Go and python3.
set -eu
cd "$(dirname "$0")/.."
fleet=bin/codefleet
dir=$(mktemp -d "${TMPDIR:-/tmp}/codefleet-demo-XXXXXX")
up=
cleanup() {
	status=$?
	trap - EXIT INT TERM
	if [ -n "$up" ]; then
		kill -TERM "$up" 2>/dev/null || true
		wait "$up" || status=1
	fi
	[ "$status" = 0 ] || sed 's/^/  up: /' "$dir/up.log" >&2
	rm -rf "$dir"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "1. A fleet: queue, object store, HTTP interface and a worker, in a fresh directory"
go build -o "$dir/producer" ./examples/producers/cloudevents
mkfifo "$dir/ready"
"$fleet" up --data "$dir/data" --http 127.0.0.1:0 --nats 127.0.0.1:0 --s3 127.0.0.1:0 >"$dir/ready" 2>"$dir/up.log" &
up=$!
started=
while read -r line; do
	echo "   $line"
	[ "$line" != ready ] || { started=yes; break; }
done <"$dir/ready"
[ -n "$started" ]
export CODEFLEET_FLEET="$dir/data/fleet.json"
field() { python3 -c 'import json, sys
v = json.load(open(sys.argv[1]))
for k in sys.argv[2:]: v = v[k]
print(v)' "$CODEFLEET_FLEET" "$@"; }

say "2. A CloudEvent over NATS, in structured mode, from a producer that does not use the codefleet client"
tenant=$(field tenant)
user=$(field nats tenants "$tenant" user)
password=$(field nats tenants "$tenant" password)
"$dir/producer" -tenant "$tenant" -code 'print(6*7)' -url "nats://$user:$password@$(field nats url | sed 's|.*://||')"

say "3. A CloudEvent over HTTP, in binary mode; the response is the task's record"
python3 - "$(field url)" "$(field token)" <<'PYTHON'
import json, sys, urllib.request
url, token = sys.argv[1:]
request = urllib.request.Request(url + "/v1/events?wait=30s", method="POST",
    data=json.dumps({"code": "sum(inputs)", "inputs": [1, 2, 3]}).encode(),
    headers={"Authorization": "Bearer " + token, "Content-Type": "application/json", "ce-specversion": "1.0",
             "ce-type": "codefleet.task.v1", "ce-source": "/demo", "ce-id": "1"})
result = json.load(urllib.request.urlopen(request))["result"]
print(f"   {result['status']}: result {result['result']}, sandbox {result['sandbox']['driver']}, {result['timing_ms']['total']:.0f} ms")
assert result["result"] == 6, result
PYTHON

say "4. codefleet run: live output, and the time of each step"
"$fleet" run --code 'import time
for i in range(3):
    print("working", i)
    time.sleep(0.2)
open("hello.txt", "w").write("written by one task")
{"result": 6 * 7}'

say "5. The next task finds the first task's file, in any sandbox"
"$fleet" run --code 'print(open("hello.txt").read())'

say "6. The fleet's list of tasks"
"$fleet" tasks
say "7. A clean stop"
