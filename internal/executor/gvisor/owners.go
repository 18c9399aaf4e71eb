package gvisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sharedDir is the name of the directory, in an owner's directory, that the owner's boxes share.
const sharedDir = "shared"

// RunningOwners returns the directories (Options.Dir/OWNER) of the owners whose boxes have processes on this host. It
// omits owners in containers and in other mount namespaces: there, the same paths name other directories.
func RunningOwners() ([]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var dirs, hidden []string
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		for arg := range bytes.SplitSeq(args, []byte{0}) {
			shared, found := strings.CutPrefix(string(arg), "--shared-root=")
			dir, ours := strings.CutSuffix(shared, "/"+sharedDir)
			if !found || !ours {
				continue
			}
			proc := filepath.Dir(file)
			switch {
			case elsewhere(proc, args) || !ownsNamespace(args) && !sameFiles(proc):
				hidden = append(hidden, dir)
			case !slices.Contains(dirs, dir):
				dirs = append(dirs, dir)
			}
		}
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return slices.Contains(hidden, dir) }), nil
}

// elsewhere reports whether the process of a box belongs to a worker in a container that this process is not in. The
// paths in its arguments args are then paths of that container. proc is the process's directory in /proc.
func elsewhere(proc string, args []byte) bool {
	own, theirs := pidDepth("/proc/self"), pidDepth(proc)
	if ownsNamespace(args) {
		theirs--
	}
	return own > 0 && theirs > own
}

// ownsNamespace reports whether the process with these arguments is one that runsc starts in namespaces of its own:
// the sandbox or the file server of a box. The runsc that starts them has the namespaces of the worker, and dies with
// it.
func ownsNamespace(args []byte) bool {
	return isSandbox(args) || bytes.Contains(args, []byte("\x00gofer\x00"))
}

// pidDepth returns in how many PID namespaces a process has an id, or 0 if the process has ended.
func pidDepth(proc string) int {
	status, _ := os.ReadFile(filepath.Join(proc, "status"))
	for line := range strings.Lines(string(status)) {
		if ids, found := strings.CutPrefix(line, "NSpid:"); found {
			return len(strings.Fields(ids))
		}
	}
	return 0
}

// sameFiles reports whether a path means the same file to a process and to this one.
func sameFiles(proc string) bool {
	mounts, err := os.Readlink(filepath.Join(proc, "ns", "mnt"))
	if err != nil {
		return false // it has ended, or belongs to another user
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil || own != mounts {
		return false
	}
	root, err := os.Stat(filepath.Join(proc, "root"))
	if err != nil {
		return false
	}
	ownRoot, err := os.Stat("/")
	return err == nil && os.SameFile(root, ownRoot)
}

// Processes returns the number of processes of the boxes whose directory is dir or below it.
func Processes(dir string) (int, error) {
	pids, err := processesOf(dir)
	return len(pids), err
}

// Groups returns the control groups of an owner and its boxes.
func Groups(ownerDir string) []string { return findCgroups(cgroupMount).groupsOf(ownerDir) }

// isSandbox reports whether a process with these arguments, each with a zero byte after it, is a sandbox of runsc.
func isSandbox(args []byte) bool { return bytes.Contains(args, []byte("\x00boot\x00")) }
