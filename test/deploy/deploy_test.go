// Package deploy_test checks the files of deploy/: that they parse, fit together, and publish nothing beyond loopback.
package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/sourcetest"
)

type composeFile struct {
	Services map[string]struct {
		Image, User, Entrypoint any
		Command                 []string
		Ports                   []string
		Volumes                 []string
		Privileged              bool
		NetworkMode             string   `yaml:"network_mode"`
		PID                     string   `yaml:"pid"`
		IPC                     string   `yaml:"ipc"`
		CapAdd                  []string `yaml:"cap_add"`
		CapDrop                 []string `yaml:"cap_drop"`
		Environment             map[string]string
	}
	Volumes map[string]any
}

// compose returns a copy of deploy/compose in which secrets.sh has run, and its compose files.
func compose(t *testing.T) (dir string, files map[string]composeFile) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "compose")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(sourcetest.Root(t), "deploy", "compose"))); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "secrets.sh")
	if err := os.RemoveAll(filepath.Join(dir, "secrets")); err != nil { // those of this checkout
		t.Fatal(err)
	}
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(script).CombinedOutput(); err != nil {
		t.Fatalf("secrets.sh: %v: %s", err, out)
	}
	files = map[string]composeFile{}
	for _, name := range []string{"compose.yaml", "compose.cluster.yaml"} {
		var f composeFile
		if err := yaml.Unmarshal(read(t, filepath.Join(dir, name)), &f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		files[name] = f
	}
	return dir, files
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// env returns the variables of an env file.
func env(t *testing.T, file string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(string(read(t, file))), "\n")
}

func TestComposeFiles(t *testing.T) {
	dir, files := compose(t)
	for name, f := range files {
		for service, s := range f.Services {
			if s.Privileged {
				t.Errorf("%s: %s is privileged, want single capabilities", name, service)
			}
			if shared := s.NetworkMode + s.PID + s.IPC; shared != "" {
				t.Errorf("%s: %s has network_mode, pid or ipc %q, want namespaces of its own", name, service, shared)
			}
			if slices.Contains(s.CapAdd, "ALL") {
				t.Errorf("%s: %s has all capabilities, want single ones", name, service)
			}
			for _, p := range s.Ports {
				if !strings.HasPrefix(p, "127.0.0.1:") {
					t.Errorf("%s: %s publishes %s, want an address of the loopback interface", name, service, p)
				}
			}
			for _, v := range s.Volumes {
				source, _, _ := strings.Cut(v, ":")
				_, named := f.Volumes[source]
				if !strings.HasPrefix(source, ".") && !strings.HasPrefix(source, "/") && !named {
					t.Errorf("%s: %s mounts the volume %s, want it below volumes", name, service, source)
				}
				if strings.HasPrefix(source, ".") {
					if _, err := os.Stat(filepath.Join(dir, source)); err != nil {
						t.Errorf("%s: %s mounts %s, want an existing file: %v", name, service, source, err)
					}
				}
			}
		}
	}
	targets := regexp.MustCompile(`[\w-]+:\d+`).FindAllString(string(read(t, filepath.Join(dir, "prometheus.yml"))), -1)
	if len(targets) != 3 {
		t.Errorf("prometheus.yml has the targets %q, want 3", targets)
	}
	for _, target := range targets {
		service, _, _ := strings.Cut(target, ":")
		if _, ok := files["compose.yaml"].Services[service]; !ok {
			t.Errorf("prometheus.yml has the target %s, want a service of compose.yaml", target)
		}
	}
}

func TestComposeSecrets(t *testing.T) {
	dir, _ := compose(t)
	secrets := filepath.Join(dir, "secrets")
	for name, want := range map[string]os.FileMode{
		"": 0o700, "fleet.env": 0o600, "nats.env": 0o600, "s3.env": 0o600, "grafana.env": 0o600,
	} {
		info, err := os.Stat(filepath.Join(secrets, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("secrets/%s: got mode %v, want %v", name, got, want)
		}
	}
	a, b := read(t, secrets+"/default.token"), read(t, secrets+"/operator.token")
	if len(a) != 48 || string(a) == string(b) {
		t.Errorf("tokens of %d and %d characters, equal: %t; want two of 48", len(a), len(b), string(a) == string(b))
	}
	if out, err := exec.Command(filepath.Join(dir, "secrets.sh")).CombinedOutput(); err == nil {
		t.Errorf("the second run of secrets.sh printed %q, want an error", out)
	}
}

// TestComposeConfig checks that the settings are valid, once the paths in the containers are those of the copy.
func TestComposeConfig(t *testing.T) {
	dir, _ := compose(t)
	file := filepath.Join(dir, "config.yaml")
	text := strings.ReplaceAll(string(read(t, file)), "/etc/codefleet/", dir+"/secrets/")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{File: file, Env: env(t, filepath.Join(dir, "secrets", "fleet.env"))})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Tenants) != 1 || !c.Auth.Enabled {
		t.Errorf("got %d tenants, auth.enabled %t; want 1 and true", len(c.Tenants), c.Auth.Enabled)
	}
}

func TestComposeNATS(t *testing.T) {
	dir, _ := compose(t)
	for _, line := range env(t, filepath.Join(dir, "secrets", "nats.env")) {
		name, value, _ := strings.Cut(line, "=")
		t.Setenv(name, value)
	}
	for name, routes := range map[string]int{"nats.conf": 0, "nats.cluster.conf": 3} {
		o, err := server.ProcessConfigFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !o.SyncAlways || len(o.Users) != 1 || len(o.Users[0].Password) != 48 || len(o.Routes) != routes {
			t.Errorf("%s: sync always %t, %d users, %d routes; want true, 1 with a password of 48 characters, %d", name,
				o.SyncAlways, len(o.Users), len(o.Routes), routes)
		}
	}
}

func TestUnits(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sourcetest.Root(t), "deploy", "systemd", "*.service"))
	if err != nil || len(files) != 3 {
		t.Fatalf("found the units %q, %v, want 3", files, err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/([\w-]+) --config /etc/codefleet/config.yaml`)
	for _, file := range files {
		unit := string(read(t, file))
		m := start.FindStringSubmatch(unit)
		if m == nil || "codefleet-"+m[1]+".service" != filepath.Base(file) {
			t.Errorf("%s starts %q, want the program of its name", filepath.Base(file), m)
			continue
		}
		if _, err := os.Stat(filepath.Join(sourcetest.Root(t), "cmd", m[1])); err != nil {
			t.Errorf("%s starts %s, want a program of cmd: %v", filepath.Base(file), m[1], err)
		}
		for _, want := range []string{"Restart=always\n", "TimeoutStopSec=45\n", "WantedBy=multi-user.target\n"} {
			if !strings.Contains(unit, want) {
				t.Errorf("%s lacks %q", filepath.Base(file), want)
			}
		}
	}
}
