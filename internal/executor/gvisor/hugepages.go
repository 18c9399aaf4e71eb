package gvisor

import (
	"bytes"
	"os"
)

// HugePagesFile is the kernel's setting for pages of 64 KiB in shared memory, where gVisor keeps the memory of
// sandboxes. With them the fork of a program's process needs a sixteenth of the page faults. See
// https://docs.kernel.org/admin-guide/mm/transhuge.html.
const HugePagesFile = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled"

// AllHugePagesFile is the setting for all sizes, which HugePagesFile may inherit. The value deny there overrides
// the setting of each size.
const AllHugePagesFile = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

// HugePages returns the effective setting of both files (always, within_size, advise, never, force or deny), or
// an empty string if the kernel has none.
func HugePages() string {
	size, err := os.ReadFile(HugePagesFile)
	if err != nil {
		return ""
	}
	all, _ := os.ReadFile(AllHugePagesFile) // exists if the other does
	return effective(size, all)
}

// effective combines the setting of a size with that of all sizes.
func effective(size, all []byte) string {
	if state := chosen(size); state != "inherit" && chosen(all) != "deny" {
		return state
	}
	return chosen(all)
}

// chosen returns the value in brackets.
func chosen(words []byte) string {
	_, rest, _ := bytes.Cut(words, []byte("["))
	word, _, _ := bytes.Cut(rest, []byte("]"))
	return string(word)
}
