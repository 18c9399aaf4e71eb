package gvisor

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/codefleet/codefleet/internal/executor"
)

// Sizes of the box's scratch file systems. They count against the box's memory.
const (
	tmpMB = 64
	shmMB = 64
)

// boxConfig is everything from which the OCI configuration of a box is made.
type boxConfig struct {
	spec     executor.Spec
	root     string // directory of the root file system
	mounts   []executor.Mount
	rootless bool
	args     []string
}

// config returns the OCI configuration of a box. Only /workspace, /tmp and /dev/shm are writable, and there is no
// network. The first process has the capabilities that the runner needs to become another user and to stop and kill
// that user's processes; in a rootless box, which has only one user, it has none.
func (b boxConfig) config() *specs.Spec {
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: "box",
		Root:     &specs.Root{Path: b.root, Readonly: true},
		Process:  b.process(),
		Mounts:   b.mountTable(),
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace},
			{Type: specs.IPCNamespace},
			{Type: specs.UTSNamespace},
			{Type: specs.MountNamespace},
			{Type: specs.NetworkNamespace},
		}},
	}
}

func (b boxConfig) process() *specs.Process {
	p := &specs.Process{
		User:            specs.User{UID: 0, GID: 0},
		Args:            b.args,
		Env:             slices.Clone(b.spec.Env),
		Cwd:             "/",
		NoNewPrivileges: true,
		Rlimits:         []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}},
		Capabilities:    &specs.LinuxCapabilities{},
	}
	if !b.rootless { // the only user of a rootless box needs no capabilities
		caps := []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_PTRACE"}
		p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	}
	return p
}

func (b boxConfig) mountTable() []specs.Mount {
	table := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
		tmpfs("/tmp", tmpMB),
		tmpfs("/dev/shm", shmMB),
	}
	if b.spec.Workspace != "" {
		table = append(table, bindWorkspace(b.spec.Workspace))
	}
	for _, m := range slices.Concat(b.mounts, b.spec.Mounts) {
		table = append(table, bind(m))
	}
	return table
}

// bindWorkspace returns the mount of the workspace, without gVisor's cache of unused directory entries. Each cached
// entry keeps its file open, so a file that the host deletes between two tasks would use disk space until the box is
// destroyed.
func bindWorkspace(dir string) specs.Mount {
	m := bind(executor.Mount{Source: dir, Target: executor.DefaultGuest().Workspace})
	m.Options = append(m.Options, "dcache=0")
	return m
}

// bind returns the mount of a directory of the host.
func bind(m executor.Mount) specs.Mount {
	access := "rw"
	if m.ReadOnly {
		access = "ro"
	}
	return specs.Mount{
		Destination: m.Target, Type: "bind", Source: m.Source, Options: []string{"bind", access, "nosuid", "nodev"},
	}
}

// tmpfs returns the mount of a scratch file system. Without a size, its files could use all memory of the box.
func tmpfs(target string, mb int) specs.Mount {
	return specs.Mount{
		Destination: target, Type: "tmpfs", Source: "tmpfs",
		Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%dm", mb)},
	}
}
