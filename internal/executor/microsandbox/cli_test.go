package microsandbox

import (
	"bytes"
	"io"
	"testing"
)

// TestOutputIsCapped checks that io.Copy keeps no more of a command's output than the limit, too.
func TestOutputIsCapped(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 3*maxOutput)
	var c capped
	// A reader without WriteTo, like the pipe of a command.
	n, err := io.Copy(&c, struct{ io.Reader }{bytes.NewReader(data)})
	if n != int64(len(data)) || err != nil || c.buffer.Len() != maxOutput {
		t.Errorf("Copy(%d bytes) = %d, %v, and %d are kept, want all and %d",
			len(data), n, err, c.buffer.Len(), maxOutput)
	}
}
