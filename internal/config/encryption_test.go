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
	secret := func(c string) string { return strings.Repeat(c, minSecret) }
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
			if len(s) != minSecret {
				t.Errorf("secret of %s has %d characters, want %d", tenant, len(s), minSecret)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("EncryptionOf(%s) = %v, want %v", tenant, got, want)
		}
	}
	for text, want := range map[string]string{
		"key_file: " + filepath.Join(dir, "none"): "workspaces.encryption.key_file: ",
		"key_file: " + file("short", "x"): "workspaces.encryption.key_file: " +
			"a secret needs at least 32 random characters",
		"old_key_files: [" + file("short", "x") + "]": "workspaces.encryption.old_key_files: a secret needs",
	} {
		bad := file("bad.yaml", "workspaces:\n  encryption:\n    "+text+"\n")
		_, err := Load(Source{File: bad, Env: []string{"HOME=" + dir}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%s) = %v, want %q", text, err, want)
		}
	}
}

func TestMirrorSetting(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("x", minSecret)), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"workspaces: {mirror: s3://codefleet/_mirror}": "",
		"workspaces: {mirror: s3://other/mirror}":      "",
		"workspaces: {mirror: s3://other}":             "",
		"workspaces: {mirror: s3://codefleet/mirror}": "workspaces.mirror: in the fleet's bucket, " +
			"the prefix must begin with _, such as s3://codefleet/_mirror",
		"workspaces: {mirror: /tmp/x}": `workspaces.mirror: "/tmp/x" is not s3://BUCKET/PREFIX`,
		"workspaces: {mirror: s3://key:s3cret@other}": `workspaces.mirror: "s3://key:xxxxx@other" is not ` +
			"s3://BUCKET/PREFIX",
		"s3: {heads: nats}\nworkspaces: {mirror: s3://other/x}": "workspaces.mirror: " +
			"requires a store with conditional writes",
		"workspaces: {mirror: s3://other/x, encryption: {key_file: " + secret + "}}"://
		"would store encrypted workspaces unencrypted (tenant default)",
		"tenants: {a: {}, b: {encryption: {key_file: " + secret + "}}}\nworkspaces: {mirror: s3://other/x}"://
		"would store encrypted workspaces unencrypted (tenant b)",
	} {
		file := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(Source{File: file, Env: []string{"HOME=" + dir}})
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%s) = %v, want %q", text, err, want)
		}
	}
}
