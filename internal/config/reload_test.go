package config

import (
	"os"
	"path/filepath"
	"testing"
)

// A reloader sees changes of the file, and of the files of secrets. Invalid settings are an error
// once; when they are valid again, they are loaded.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "token")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, "first")
	write(file, "data: "+dir+"\nmcp_servers:\n- name: wiki\n  url: https://wiki.example.org\n"+
		"  headers: {Authorization_file: "+secret+"}\n")
	c, err := Load(Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	r := NewReloader(c)
	if c, err := r.Changed(); c != nil || err != nil {
		t.Errorf("Changed without a change = %v, %v", c, err)
	}
	write(secret, "the second")
	if c, err = r.Changed(); err != nil || c.MCPServers[0].Headers["Authorization"] != "the second" {
		t.Fatalf("after a change of the secret: %v, %v", c, err)
	}
	write(file, "nonsense: 1\n")
	if c, err := r.Changed(); c != nil || err == nil {
		t.Errorf("with invalid settings: %v, %v, want an error", c, err)
	}
	if c, err := r.Changed(); c != nil || err != nil {
		t.Errorf("with the same invalid settings: %v, %v, want the error once", c, err)
	}
	write(file, "data: "+dir+"\n")
	if c, err = r.Changed(); err != nil || len(c.MCPServers) != 0 {
		t.Errorf("with valid settings: %v, %v", c, err)
	}
}

// Load notices a file that did not exist.
func TestReloadOfNewFile(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := Load(Source{Env: []string{"HOME=/tmp"}})
	if err != nil {
		t.Fatal(err)
	}
	r := NewReloader(c)
	if err := os.WriteFile("config.yaml", []byte("mcp_servers: [{name: a, command: b}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err = r.Changed(); err != nil || c == nil || len(c.MCPServers) != 1 {
		t.Errorf("Changed = %+v, %v, want the new file's server", c, err)
	}
}
