package jobs

import (
	"errors"
	"strconv"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
)

// TestToolPatterns checks which patterns tools.allow of a task may have.
func TestToolPatterns(t *testing.T) {
	for pattern, ok := range map[string]bool{
		"*": true, "crm/*": true, "crm/add-note": true, "crm/notes/add": true,
		"crm": false, "crm.add": false, "crm/": false, "/add": false, "crm/add*": false, "*/add": false, "**": false,
	} {
		s := submission{data: []byte(`{"code": "1", "tools": {"allow": ["*", ` + strconv.Quote(pattern) + `]}}`)}
		err := s.decode()
		r, refused := errors.AsType[*RefusedError](err)
		if ok && err != nil {
			t.Errorf("decode with %q = %v, want nil", pattern, err)
		}
		if !ok && (!refused || r.Code != errcode.BadData || r.Path != "/tools/allow/1" || r.Hint == "") {
			t.Errorf("decode with %q = %v, want a refusal of /tools/allow/1 with a hint", pattern, err)
		}
	}
}
