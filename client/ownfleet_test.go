package client

import (
	"bytes"
	"testing"
)

// TestLogEnd checks that the log of a fleet that an agent has started does not grow for ever.
func TestLogEnd(t *testing.T) {
	l, all := new(logEnd), []byte(nil)
	for i := range 1000 {
		line := bytes.Repeat([]byte{byte('a' + i%26)}, 1000)
		all = append(all, line...)
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Fatalf("Write = %d, %v; want %d", n, err, len(line))
		}
		if len(l.text) > 2*maxLog || !bytes.HasSuffix(all, l.text) || len(l.text) < min(len(all), maxLog) {
			t.Fatalf("after %d bytes the log has %d; want the last %d to %d", len(all), len(l.text), maxLog, 2*maxLog)
		}
	}
}
