package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
)

// TestInterruptedDoctor checks that doctor prints no results of checks that an interrupt has cut off.
func TestInterruptedDoctor(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	var out strings.Builder
	a := &app{output: "text", stdout: &out, env: []string{"CODEFLEET_DATA=" + t.TempDir()}}
	if err := a.doctor(ctx, false); !errors.Is(err, errInterrupted) || out.Len() > 0 {
		t.Errorf("doctor = %v and prints %q, want %v and nothing", err, out.String(), errInterrupted)
	}
}

// TestDoctorPython checks that doctor requires the host's Python under microsandbox only to install packages.
func TestDoctorPython(t *testing.T) {
	const unneeded = "not needed: execution.sandbox_type is microsandbox"
	for requirements, want := range map[string]bool{"": false, "r.txt": true} {
		const rootfs = "/srv/rootfs" // only gVisor uses it
		c := &config.Config{
			Execution: config.Execution{SandboxType: "microsandbox", Rootfs: rootfs},
			Pools:     map[string]config.Pool{"science": {Requirements: requirements}},
		}
		if r := (&hostCheck{Config: c}).python(t.Context()); (r.Detail != unneeded) != want ||
			strings.Contains(r.Detail, rootfs) {
			t.Errorf("with requirements %q: %+v, needed: want %v", requirements, r, want)
		}
	}
}

// TestDoctorTenants checks that doctor accepts several tenants exactly if a worker does.
func TestDoctorTenants(t *testing.T) {
	image := config.Execution{SandboxImage: "/srv/python.tar"}
	twoPools := map[string]config.Pool{"default": {Image: "/srv/python.tar"}, "science": {}}
	root, rootless := executor.Info{ImageMultiTenant: true}, executor.Info{}
	const oneTenant = "boots; for one tenant only (task pools "
	for name, c := range map[string]struct {
		config config.Config
		info   executor.Info
		status string
		detail string
	}{
		"image":              {config.Config{Execution: image}, root, good, "boots"},
		"image, not root":    {config.Config{Execution: image}, rootless, problem, oneTenant + "default)"},
		"host's files":       {config.Config{}, root, problem, oneTenant + "default)"},
		"image for one pool": {config.Config{Pools: twoPools}, root, problem, oneTenant + "science)"},
	} {
		c.config.Tenants = map[string]config.Tenant{"a": {}, "b": {}}
		r := withTenants(passed("sandbox", "boots"), &c.config, c.info)
		if r.Status != c.status || r.Detail != c.detail || (r.Fix == "") != (c.status == good) {
			t.Errorf("%s: %q, %q, fix %q; want %q, %q", name, r.Status, r.Detail, r.Fix, c.status, c.detail)
		}
	}
	alone := &config.Config{Tenants: map[string]config.Tenant{config.DefaultTenant: {}}}
	if r := withTenants(passed("sandbox", "boots"), alone, root); r.Status != good ||
		r.Detail != "boots; for one tenant only" {
		t.Errorf("with one tenant: %q, %q; want ok, for one tenant only", r.Status, r.Detail)
	}
}
