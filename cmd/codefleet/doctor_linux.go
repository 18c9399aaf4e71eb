package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// userNamespaces checks the settings that keep an unprivileged user from starting a sandbox.
func (p *examination) userNamespaces(context.Context) finding {
	const name = "user namespaces"
	if p.root {
		return finding{name, good, "not needed as root", ""}
	}
	for _, c := range []struct{ file, bad, fix string }{
		{
			"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
			"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
		},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"},
	} {
		if data, err := os.ReadFile(c.file); err == nil && strings.TrimSpace(string(data)) == c.bad {
			return finding{
				name, problem, fmt.Sprintf("restricted: %s is %s", c.file, c.bad),
				c.fix + "  (keep it: a file in /etc/sysctl.d), or run as root",
			}
		}
	}
	return finding{name, good, "allowed for unprivileged users", ""}
}

// cgroups checks whether control groups can limit memory and processors of boxes.
func (p *examination) cgroups(context.Context) finding {
	const name = "cgroups"
	if !p.root {
		return finding{name, warning, "not used without root: limits are rlimits only", "run workers as root"}
	}
	if data, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil &&
		strings.Contains(string(data), "memory") {
		return writable(name, "/sys/fs/cgroup", "v2: "+strings.TrimSpace(string(data)))
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		return writable(name, "/sys/fs/cgroup/memory", "v1")
	}
	return finding{
		name, warning, "no memory controller: limits are rlimits only",
		"mount a cgroup2 file system with the memory controller",
	}
}

func writable(name, dir, detail string) finding {
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return finding{
			name, warning, detail + ", read-only: limits are rlimits only",
			"give this container a writable cgroup",
		}
	}
	return finding{name, good, detail, ""}
}

func (p *examination) disk(context.Context) finding {
	const name, enough, least = "disk", 5 << 30, 512 << 20
	dir := p.Data
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" || dir == "." {
			break
		}
		dir = filepath.Dir(dir)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return finding{name, problem, fmt.Sprintf("%s: %v", dir, err), ""}
	}
	free := s.Bavail * uint64(s.Bsize)
	f := finding{name, good, fmt.Sprintf("%.1f GiB free in %s", float64(free)/(1<<30), dir), ""}
	if free < enough {
		f.Status, f.Fix = warning, "free space, or set CODEFLEET_DATA to another directory"
	}
	if free < least {
		f.Status = problem
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		f.Status, f.Detail, f.Fix = problem, dir+" is not writable", "set CODEFLEET_DATA to another directory"
	}
	return f
}

func (p *examination) openFiles(context.Context) finding {
	const name, enough = "open files", 8192
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return finding{name, warning, err.Error(), ""}
	}
	// The Go runtime raises the soft limit to the hard limit.
	if l.Max < enough {
		return finding{
			name, warning, strconv.FormatUint(l.Max, 10) + " at most",
			"ulimit -Hn 65536, or LimitNOFILE=65536 in the service's unit",
		}
	}
	return finding{name, good, strconv.FormatUint(l.Max, 10) + " at most", ""}
}

// clock checks whether the kernel's clock is synchronised: hosts compare leases and expiry times.
func (p *examination) clock(context.Context) finding {
	const name, unsynchronised = "clock", 0x40
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		return finding{name, warning, err.Error(), ""}
	case state == unix.TIME_ERROR || t.Status&unsynchronised != 0:
		return finding{
			name, warning, "not synchronised, as workers on several hosts need",
			"timedatectl set-ntp true",
		}
	}
	return finding{name, good, "synchronised", ""}
}
