package gvisor

import (
	"bytes"
	"os"
)

// HugePagesFile is the kernel's setting for pages of 64 KiB in shared memory, which is what gVisor
// keeps the memory of sandboxes in: with them it forks a program's process with a sixteenth of the
// page faults. See https://docs.kernel.org/admin-guide/mm/transhuge.html.
const HugePagesFile = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled"

// AllHugePagesFile is the setting for all sizes, which HugePagesFile may say to inherit; deny there is
// never for each of them.
const AllHugePagesFile = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

// HugePages returns what the kernel does by these files (always, within_size, advise, never, force or
// deny), and "" where it has no such setting.
func HugePages() string {
	size, err := os.ReadFile(HugePagesFile)
	if err != nil {
		return ""
	}
	all, _ := os.ReadFile(AllHugePagesFile) // it is there with the other
	return effective(size, all)
}

// effective returns what holds for a size, by its setting and that for all.
func effective(size, all []byte) string {
	if state := chosen(size); state != "inherit" && chosen(all) != "deny" {
		return state
	}
	return chosen(all)
}

// chosen returns the word in brackets.
func chosen(words []byte) string {
	_, rest, _ := bytes.Cut(words, []byte("["))
	word, _, _ := bytes.Cut(rest, []byte("]"))
	return string(word)
}
