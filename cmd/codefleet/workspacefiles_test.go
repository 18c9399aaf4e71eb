package main

import (
	"testing"

	"github.com/codefleet/codefleet/client"
)

func TestNameText(t *testing.T) {
	for _, c := range []struct {
		file client.WorkspaceFile
		want string
	}{
		{client.WorkspaceFile{Path: "a b", Kind: "file"}, "a b"},
		{client.WorkspaceFile{Path: "a\nb", Kind: "file"}, `"a\nb"`},
		{client.WorkspaceFile{Path: "a\x1b", Kind: "dir"}, `"a\x1b/"`},
		{client.WorkspaceFile{Path: "l", Kind: "link", Target: "a\tb"}, `l -> "a\tb"`},
	} {
		if got := nameText(c.file); got != c.want {
			t.Errorf("nameText(%+v) = %s, want %s", c.file, got, c.want)
		}
	}
}
