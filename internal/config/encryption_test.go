package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEncryption(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := func(c string) string { return strings.Repeat(c, leastSecret) }
	conf := file("config.yaml", `
workspaces:
  encryption: {key_file: `+file("fleet", secret("f")+"\n")+`, old_key_files: [`+file("old", secret("o"))+`]}
tenants:
  acme: {encryption: {key_file: `+file("acme", secret("a"))+`}}
  corp: {}
`)
	c, err := Load(Source{File: conf, Env: []string{"HOME=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string][]string{"acme": {"a", "o", "f"}, "corp": {"f", "o"}} {
		current, old := c.EncryptionOf(tenant)
		var got []string
		for _, s := range slices.Concat([]Secret{current}, old) {
			got = append(got, string(s[0]))
			if len(s) != leastSecret {
				t.Errorf("a secret of %s has %d characters, want %d", tenant, len(s), leastSecret)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("EncryptionOf(%s) = %v, want %v", tenant, got, want)
		}
	}
	for text, want := range map[string]string{
		"key_file: " + filepath.Join(dir, "none"):     "workspaces.encryption.key_file: ",
		"key_file: " + file("short", "x"):             "workspaces.encryption.key_file: a secret has at least 32 random characters",
		"old_key_files: [" + file("short", "x") + "]": "workspaces.encryption.old_key_files: a secret has",
	} {
		_, err := Load(Source{File: file("bad.yaml", "workspaces:\n  encryption:\n    "+text+"\n"), Env: []string{"HOME=" + dir}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%s) = %v, want %q", text, err, want)
		}
	}
}
