package gvisor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// cgroups creates the control groups of boxes: codefleet/<owner>/<box> in each hierarchy that limits a resource.
// The zero value is disabled.
type cgroups struct {
	v2    bool
	roots []string // root directories of the hierarchies; version 2 has one
}

// cgroupMount is where the hierarchies are mounted.
const cgroupMount = "/sys/fs/cgroup"

// boxOverheadMB is added to a program's memory limit to get its box's limit. It covers the engine, the runner
// and full scratch file systems.
const boxOverheadMB = 128 + tmpMB + shmMB

// findCgroups finds the hierarchies that limit resources at mount, usually /sys/fs/cgroup. The result is disabled if
// none of them limits memory. The driver manages groups itself: it needs two directories where runsc makes twelve, it
// can change limits when a box is acquired, and it can read why a box died.
func findCgroups(mount string) cgroups {
	if controllers, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers")); err == nil {
		if strings.Contains(string(controllers), "memory") {
			return cgroups{v2: true, roots: []string{mount}}
		}
		return cgroups{}
	}
	if _, err := os.Stat(filepath.Join(mount, "memory", "memory.limit_in_bytes")); err != nil {
		return cgroups{}
	}
	c := cgroups{roots: []string{filepath.Join(mount, "memory")}}
	for _, name := range []string{"cpu", "cpuacct"} {
		root, err := filepath.EvalSymlinks(filepath.Join(mount, name))
		if err == nil && !slices.Contains(c.roots, root) {
			c.roots = append(c.roots, root)
		}
	}
	return c
}

func (c cgroups) enabled() bool { return len(c.roots) > 0 }

// ownerGroup returns the name of an owner's group. It depends on the state directory, so that workers with the
// same owner name and different directories do not share groups.
func ownerGroup(ownerDir string) string {
	return filepath.Join("codefleet", filepath.Base(ownerDir)+"-"+hostdir.PathHash(ownerDir))
}

// setWeight sets the CPU weight of a group that has the boxes below it: the more processors the machine has, the higher
// the weight. By default a group weighs as much as one process, so that a busy worker would starve all its boxes.
func (g group) setWeight() {
	if g.v2 {
		_ = g.write("cpu.weight", strconv.Itoa(min(10_000, 800*runtime.NumCPU())))
		return
	}
	_ = g.write("cpu.shares", strconv.Itoa(8192*runtime.NumCPU()))
}

// A group is the control group of a box or of an owner: one directory for each hierarchy.
type group struct {
	v2   bool
	dirs []string
}

// create creates the group of a box. In version 2 each level must delegate its controllers.
func (c cgroups) create(ownerDir, box string) (group, error) {
	g := group{v2: c.v2}
	for _, root := range c.roots {
		dir := root
		for level, name := range strings.Split(filepath.Join(ownerGroup(ownerDir), box), "/") {
			if c.v2 {
				if err := delegate(dir); err != nil {
					return g, errors.Join(err, g.remove())
				}
			}
			dir = filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return g, errors.Join(fmt.Errorf("make cgroup: %w", err), g.remove())
			}
			if level < 2 { // not the box's own group
				group{c.v2, []string{dir}}.setWeight()
			}
		}
		g.dirs = append(g.dirs, dir)
	}
	return g, nil
}

// delegate lets the groups below dir limit memory and processors.
func delegate(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory +cpu"), 0); err != nil {
		return fmt.Errorf("delegate cgroup controllers: %w", err)
	}
	return nil
}

// removeOwner removes the groups of an owner and its boxes. It returns an error if a group still has a process.
func (c cgroups) removeOwner(ownerDir string) error {
	return group{dirs: c.groupsOf(ownerDir)}.remove()
}

// groupsOf returns the directories of the groups of an owner's boxes and of the owner, in the order in which they can
// be removed.
func (c cgroups) groupsOf(ownerDir string) []string {
	var all []string
	for _, root := range c.roots {
		dir := filepath.Join(root, ownerGroup(ownerDir))
		boxes, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs")) // fails only for an invalid pattern
		for _, procs := range boxes {
			all = append(all, filepath.Dir(procs))
		}
		if _, err := os.Stat(dir); err == nil {
			all = append(all, dir)
		}
	}
	return all
}

// remove removes the group's directories. It fails while a process is in the group.
func (g group) remove() error {
	var errs []error
	for _, dir := range g.dirs {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
		}
	}
	return errors.Join(errs...)
}

// add moves a process into the group. Its later children start there.
func (g group) add(pid int) error {
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// setting is a value for one file of a group.
type setting struct {
	file, value string
	optional    bool // ignore errors
}

// settings returns the settings that limit a box. 0 means no limit.
func settings(v2 bool, memoryMB int, cpus float64) []setting {
	const period = 100_000 // microseconds, the kernel's default
	bytes, quota := int64(memoryMB)<<20, int64(cpus*period)
	if v2 {
		return []setting{
			{"memory.oom.group", "1", true},
			{"memory.swap.max", "0", true},
			{"memory.max", limitOr("max", bytes), false},
			{"cpu.max", limitOr("max", quota) + " " + strconv.Itoa(period), false},
		}
	}
	return []setting{
		{"memory.swappiness", "0", true},
		{"memory.limit_in_bytes", limitOr("-1", bytes), false},
		{"cpu.cfs_quota_us", limitOr("-1", quota), true},
	}
}

// limitOr returns a limit as text. For 0, which means no limit, it returns the argument none.
func limitOr(none string, limit int64) string {
	if limit == 0 {
		return none
	}
	return strconv.FormatInt(limit, 10)
}

// apply writes each setting to the hierarchy that has its file.
func (g group) apply(list []setting) error {
	for _, s := range list {
		if err := g.write(s.file, s.value); err != nil && !s.optional {
			return fmt.Errorf("limit box: %w", err)
		}
	}
	return nil
}

// write writes a value to a file of the group, in the first hierarchy that has the file.
func (g group) write(file, value string) error {
	for _, dir := range g.dirs {
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = f.WriteString(value)
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("%s: %w", file, fs.ErrNotExist)
}

// outOfMemory reports whether the kernel killed a process of the group because of its memory limit.
func (g group) outOfMemory() bool {
	if g.v2 {
		return g.field("memory.events", "oom_kill") > 0
	}
	return g.field("memory.oom_control", "oom_kill") > 0
}

// stats returns the current resource use of the group. Its memory is what the kernel charges to it, without the page
// cache, which the kernel can reclaim. Shared memory counts, although the kernel reports it as part of the page cache:
// it is the memory of the sandbox.
func (g group) stats() executor.Stats {
	stats := executor.Stats{MemoryMB: g.chargedMB() - g.reclaimableMB()}
	if g.v2 {
		stats.CPUMS = float64(g.field("cpu.stat", "usage_usec")) / 1e3
	} else {
		stats.CPUMS = float64(g.field("cpuacct.usage", "")) / 1e6
	}
	return stats
}

// usesMoreThan reports whether the memory in stats is more than mb. It reads one small file if all memory is less.
func (g group) usesMoreThan(mb float64) bool {
	charged := g.chargedMB()
	return charged > mb && charged-g.reclaimableMB() > mb
}

const mib = 1 << 20

// chargedMB returns the memory that the kernel charges to the group, with the page cache and the kernel's own.
func (g group) chargedMB() float64 {
	if g.v2 {
		return float64(g.field("memory.current", "")) / mib
	}
	return float64(g.field("memory.usage_in_bytes", "")) / mib
}

// reclaimableMB returns the page cache of the group without its shared memory.
func (g group) reclaimableMB() float64 {
	if g.v2 {
		return float64(g.field("memory.stat", "file")-g.field("memory.stat", "shmem")) / mib
	}
	return float64(g.field("memory.stat", "total_cache")-g.field("memory.stat", "total_shmem")) / mib
}

// field returns the number after name in a file with lines of "name number", or the only number of a file if
// name is empty. It returns 0 if the file or name is missing.
func (g group) field(file, name string) int64 {
	for _, dir := range g.dirs {
		f, err := os.Open(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			key, value, found := strings.Cut(lines.Text(), " ")
			if !found {
				key, value = "", key
			}
			if key == name {
				n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				return n
			}
		}
	}
	return 0
}
