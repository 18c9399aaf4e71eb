package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// HugePagesFile is the kernel's setting for 64 KiB pages in shared memory, where gVisor keeps the memory of
// sandboxes. With such pages, forking a program's process takes a sixteenth of the page faults. See
// https://docs.kernel.org/admin-guide/mm/transhuge.html.
const HugePagesFile = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled"

// AllHugePagesFile is the setting for all page sizes, which HugePagesFile may inherit. Its value deny overrides
// the settings of the single sizes.
const AllHugePagesFile = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

// HugePages returns the setting that results from both files (always, within_size, advise, never, force or
// deny), or an empty string if the kernel does not support 64 KiB pages.
func HugePages() string {
	size, err := os.ReadFile(HugePagesFile)
	if err != nil {
		return ""
	}
	all, _ := os.ReadFile(AllHugePagesFile) // exists if HugePagesFile does
	return effective(size, all)
}

// HugePagesLine is the line of a file of systemd-tmpfiles that sets HugePagesFile whenever the host starts.
const HugePagesLine = "w " + HugePagesFile + " - - - - " + wantedHugePages

// wantedHugePages lets a file in shared memory have a huge page where the whole page is within the file.
const wantedHugePages = "within_size"

// LacksHugePages reports whether the setting that HugePages returned keeps sandboxes from huge pages, and
// EnableHugePages can change it. It cannot change deny, which an operator has set for all page sizes.
func LacksHugePages(state string) bool { return state == "never" || state == "advise" }

// EnableHugePages changes HugePagesFile, and makes a file in dir, usually /etc/tmpfiles.d, that repeats this whenever
// the host starts. If dir does not exist, it makes no file. It needs root.
func EnableHugePages(dir string) error { return enableHugePages(HugePagesFile, dir) }

func enableHugePages(file, dir string) error {
	if err := os.WriteFile(file, []byte(wantedHugePages), 0); err != nil {
		return fmt.Errorf("enable huge pages: %w", err)
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, "codefleet.conf"), []byte(HugePagesLine+"\n"), 0o644); err != nil {
		return fmt.Errorf("enable huge pages: %w", err)
	}
	return nil
}

// effective combines the setting of one size with the setting of all sizes.
func effective(size, all []byte) string {
	if state := current(size); state != "inherit" && current(all) != "deny" {
		return state
	}
	return current(all)
}

// current returns a setting's current value, which is the word in brackets.
func current(words []byte) string {
	_, rest, _ := bytes.Cut(words, []byte("["))
	word, _, _ := bytes.Cut(rest, []byte("]"))
	return string(word)
}
