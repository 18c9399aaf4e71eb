package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLimitOfAContainer(t *testing.T) {
	for _, tt := range []struct {
		file, text string
		want       int
	}{
		{"memory.max", "2147483648\n", 2048},
		{"memory.max", "max\n", 0},
		{"memory/memory.limit_in_bytes", "536870912\n", 512},
		{"other", "1\n", 0},
	} {
		file := filepath.Join(t.TempDir(), tt.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		mount := file[:len(file)-len(tt.file)]
		if got := limitMB(mount); got != tt.want {
			t.Errorf("limitMB with %s = %q: %d, want %d", tt.file, tt.text, got, tt.want)
		}
	}
	if mb := memoryMB(); mb <= 0 {
		t.Errorf("memoryMB = %d, want this host's memory", mb)
	}
}
