package gvisor

import (
	"bytes"
	"os"
)

// HugePagesFile is the kernel's setting for pages of 64 KiB in shared memory, which is what gVisor
// keeps the memory of sandboxes in: with them it forks a program's process with a sixteenth of the
// page faults. See https://docs.kernel.org/admin-guide/mm/transhuge.html.
const HugePagesFile = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled"

// HugePages returns what the kernel does by HugePagesFile (always, within_size, advise or never), and
// "" where it has no such setting.
func HugePages() string {
	data, err := os.ReadFile(HugePagesFile)
	if err != nil {
		return ""
	}
	if state := chosen(data); state != "inherit" {
		return state
	}
	data, _ = os.ReadFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled") // it is there with the other
	return chosen(data)
}

// chosen returns the word in brackets.
func chosen(words []byte) string {
	_, rest, _ := bytes.Cut(words, []byte("["))
	word, _, _ := bytes.Cut(rest, []byte("]"))
	return string(word)
}
