package gvisor

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCurrent(t *testing.T) {
	for words, want := range map[string]string{
		"always inherit within_size advise [never]\n": "never",
		"always inherit [within_size] advise never\n": "within_size",
		"[always] inherit within_size advise never\n": "always",
		"":      "",
		"never": "",
		"[":     "",
	} {
		if got := current([]byte(words)); got != want {
			t.Errorf("current(%q) = %q, want %q", words, got, want)
		}
	}
}

func TestEffective(t *testing.T) {
	const all = "always within_size advise [never] deny force\n"
	for _, c := range []struct{ size, all, want string }{
		{"always inherit [within_size] advise never\n", all, "within_size"},
		{"always [inherit] within_size advise never\n", all, "never"},
		{"always [inherit] within_size advise never\n", "[always] within_size advise never deny force\n", "always"},
		{"always inherit [within_size] advise never\n", "always within_size advise never [deny] force\n", "deny"},
		{"always [inherit] within_size advise never\n", "always within_size advise never [deny] force\n", "deny"},
		{"always inherit [within_size] advise never\n", "", "within_size"},
	} {
		if got := effective([]byte(c.size), []byte(c.all)); got != c.want {
			t.Errorf("effective(%q, %q) = %q, want %q", c.size, c.all, got, c.want)
		}
	}
}

func TestEnableHugePages(t *testing.T) {
	dir := t.TempDir()
	setting, persistent := filepath.Join(dir, "shmem_enabled"), filepath.Join(dir, "tmpfiles.d")
	if err := os.WriteFile(setting, []byte("[never]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := enableHugePages(setting, persistent); err != nil {
		t.Fatalf("enableHugePages on a host without tmpfiles.d: %v", err)
	}
	if err := os.Mkdir(persistent, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := enableHugePages(setting, persistent); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		setting: "within_size",
		filepath.Join(persistent, "codefleet.conf"): HugePagesLine + "\n",
	} {
		if got, err := os.ReadFile(file); string(got) != want {
			t.Errorf("%s = %q, %v; want %q", file, got, err, want)
		}
	}
	if err := enableHugePages(filepath.Join(dir, "missing", "file"), persistent); err == nil {
		t.Error("enableHugePages without the kernel's file = nil, want an error")
	}
}
