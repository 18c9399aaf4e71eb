package gvisor

import (
	"bytes"
	"os"
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
