package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// userNamespaces checks the kernel settings that prevent unprivileged users from starting a sandbox.
func (p *hostCheck) userNamespaces(context.Context) checkResult {
	const name = "user namespaces"
	if p.root {
		return passed(name, "not needed as root")
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
			return checkResult{
				name, problem, fmt.Sprintf("restricted: %s is %s", c.file, c.bad),
				c.fix + "  (to make it permanent, set it in a file in /etc/sysctl.d), or run as root",
			}
		}
	}
	return passed(name, "allowed for unprivileged users")
}

// cgroups checks whether control groups can limit the memory of boxes.
func (p *hostCheck) cgroups(context.Context) checkResult {
	const name = "cgroups"
	if !p.root {
		return checkResult{name, warning, "not used without root: only rlimits apply", "run workers as root"}
	}
	if data, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil &&
		strings.Contains(string(data), "memory") {
		return writable(name, "/sys/fs/cgroup", "v2: "+strings.TrimSpace(string(data)))
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		return writable(name, "/sys/fs/cgroup/memory", "v1")
	}
	return checkResult{
		name, warning, "no memory controller: only rlimits apply",
		"mount a cgroup2 file system with the memory controller",
	}
}

// writable returns the result of the check with this name, which warns unless dir is writable.
func writable(name, dir, detail string) checkResult {
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return checkResult{
			name, warning, detail + ", read-only: only rlimits apply",
			"give this container a writable cgroup",
		}
	}
	return passed(name, "%s", detail)
}

// disk checks the file system of the data directory, or of its nearest parent that exists.
func (p *hostCheck) disk(context.Context) checkResult {
	const name, warnBelow, failBelow = "disk", 5 << 30, 512 << 20 // bytes
	dir := p.Data
	for dir != "/" && dir != "." {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return checkResult{name, problem, fmt.Sprintf("%s: %v", dir, err), ""}
	}
	free := s.Bavail * uint64(s.Bsize)
	r := passed(name, "%.1f GiB free in %s", float64(free)/(1<<30), dir)
	if free < warnBelow {
		r.Status, r.Fix = warning, "free space, or set CODEFLEET_DATA to another directory"
	}
	if free < failBelow {
		r.Status = problem
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		r.Status, r.Detail, r.Fix = problem, dir+" is not writable", "set CODEFLEET_DATA to another directory"
	}
	return r
}

// openFiles checks how many files a process may open.
func (p *hostCheck) openFiles(context.Context) checkResult {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return checkResult{openFilesCheck, warning, err.Error(), ""}
	}
	return openFiles(l.Max, p.root) // the Go runtime raises the soft limit to the hard limit
}

const openFilesCheck = "open files"

// openFiles judges the hard limit, which only root can raise.
func openFiles(limit uint64, root bool) checkResult {
	const warnBelow = 8192
	if limit == unix.RLIM_INFINITY {
		return passed(openFilesCheck, "unlimited")
	}
	r := passed(openFilesCheck, "the limit is %d", limit)
	if limit < warnBelow {
		r.Status, r.Fix = warning, "LimitNOFILE=65536 in the service's unit, or "
		if root {
			r.Fix += "ulimit -Hn 65536"
		} else {
			r.Fix += "as root, a line \"* hard nofile 65536\" in /etc/security/limits.conf; then log in again"
		}
	}
	return r
}

// clock checks whether the clock is synchronised, because hosts compare lease and expiry times.
func (p *hostCheck) clock(context.Context) checkResult {
	const name, unsynchronised = "clock", 0x40 // STA_UNSYNC of adjtimex(2)
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		return checkResult{name, warning, err.Error(), ""}
	case state == unix.TIME_ERROR || t.Status&unsynchronised != 0:
		const message = "not synchronised; workers on several hosts need synchronised clocks"
		return checkResult{name, warning, message, "timedatectl set-ntp true"}
	}
	return passed(name, "synchronised")
}
