package embedded

import "testing"

// A client can stop the queue neither with its name nor with other text of its own in the server's log.
func TestIsDiskFull(t *testing.T) {
	for line, want := range map[string]bool{
		"JetStream failed to store a msg on stream 'FLEET > TASKS': write 1.blk: no space left on device": true,
		"Filestore [TASKS] Critical write error: write 1.blk: disk quota exceeded":                        true,
		"JetStream failed to store a msg on stream 'FLEET > TASKS': maximum bytes exceeded":               false,
		`127.0.0.1:1 - cid:6 - "no space left on device" - processPub Parse Error`:                        false,
		"127.0.0.1:1 - cid:6 - processPub Parse Error: 'no space left on device'":                         false,
	} {
		if got := isDiskFull(line); got != want {
			t.Errorf("isDiskFull(%q) = %v, want %v", line, got, want)
		}
	}
}
