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

// RunningOwners returns the directories (Options.Dir/OWNER) of the owners whose boxes have processes on this host.
func RunningOwners() ([]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var dirs []string
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		for arg := range bytes.SplitSeq(args, []byte{0}) {
			shared, found := strings.CutPrefix(string(arg), "--shared-root=")
			dir, ours := strings.CutSuffix(shared, "/"+sharedDir)
			if found && ours && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs, nil
}

// Processes returns the number of processes of the boxes whose directory is below dir.
func Processes(dir string) (int, error) {
	pids, err := processesOf(dir)
	return len(pids), err
}

// Groups returns the control groups of an owner and its boxes.
func Groups(ownerDir string) []string { return findCgroups(cgroupMount).groupsOf(ownerDir) }
