package microsandbox

import (
	"os"
	"path/filepath"
	"testing"
)

func TestIsMachine(t *testing.T) {
	for _, c := range []struct {
		args, env string
		want      bool
	}{
		{"/opt/msb\x00machine\x00--name\x00f.w1\x00--vcpus\x001\x00", "A=1\x00MSB_HOME=/d/m\x00", true},
		{"/opt/msb\x00machine\x00--name\x00f.w1\x00", "MSB_HOME=/d/m\x00A=1\x00", true},
		{"/opt/msb\x00machine\x00--error\x00--name\x00f.w1\x00--vcpus\x001\x00", "A=1\x00MSB_HOME=/d/m\x00", true},
		{"/opt/msb\x00machine\x00--name", "MSB_HOME=/d/m\x00", false},
		{"/opt/msb\x00exec\x00--name\x00f.w1\x00", "MSB_HOME=/d/m\x00", false},
		{"/opt/msb\x00machine\x00--name\x00f.w10\x00", "MSB_HOME=/d/m\x00", false},
		{"/opt/msb\x00machine\x00--name\x00f.w1\x00", "MSB_HOME=/d/m2\x00", false},
		{"/opt/msb\x00machine\x00--name\x00f.w1\x00", "OLD_MSB_HOME=/d/m\x00", false},
		{"/bin/grep\x00f.w1\x00", "MSB_HOME=/d/m\x00", false},
		{"", "", false},
	} {
		proc := t.TempDir()
		for name, text := range map[string]string{"cmdline": c.args, "environ": c.env} {
			if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := isMachine(proc, "/d/m", "f.w1"); got != c.want {
			t.Errorf("isMachine(%q, %q) = %v, want %v", c.args, c.env, got, c.want)
		}
	}
	if isMachine(filepath.Join(t.TempDir(), "gone"), "/d/m", "f.w1") {
		t.Error("isMachine of a process that has ended = true, want false")
	}
}
