package config

import (
	"os"
	"path/filepath"
	"testing"
)

// A reloader notices changes of the configuration file and of secret files. It returns the error of invalid settings
// once, and loads the settings when they are valid again.
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
		t.Errorf("Changed without a change = %v, %v, want nil, nil", c, err)
	}
	write(secret, "the second")
	if c, err = r.Changed(); err != nil || c.MCPServers[0].Headers["Authorization"] != "the second" {
		t.Fatalf("Changed after a change of the secret = %v, %v, want the second secret", c, err)
	}
	write(file, "nonsense: 1\n")
	if c, err := r.Changed(); c != nil || err == nil {
		t.Errorf("Changed with invalid settings = %v, %v, want an error", c, err)
	}
	if c, err := r.Changed(); c != nil || err != nil {
		t.Errorf("Changed with the same invalid settings = %v, %v, want nil, nil", c, err)
	}
	write(file, "data: "+dir+"\n")
	if c, err = r.Changed(); err != nil || len(c.MCPServers) != 0 {
		t.Errorf("Changed with valid settings = %v, %v, want no MCP servers and nil", c, err)
	}
}

// A reloader notices a file that did not exist when the settings were loaded.
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
