package pipeline

import (
	"testing"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/schemas"
)

func TestHintNetwork(t *testing.T) {
	const noName = "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"
	allowed, _, err := allowlist.ParseAll([]string{"example.org"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		error *schemas.Error
		task  task
		want  bool
	}{
		{error: &schemas.Error{Message: noName}, want: true},
		{error: &schemas.Error{Message: "OSError: [Errno 101] Network is unreachable"}, want: true},
		{error: &schemas.Error{Message: noName}, task: task{network: allowed}}, // it has asked: something else is wrong
		{error: &schemas.Error{Message: "ValueError: x"}},
		{error: nil},
	} {
		c.task.result.Error = c.error
		c.task.hintNetwork()
		if got := c.error != nil && c.error.Hint != ""; got != c.want {
			t.Errorf("hintNetwork of %+v with %d hosts: hint %v, want %v", c.error, len(c.task.network), got, c.want)
		}
	}
}
