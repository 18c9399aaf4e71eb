// Package runner contains the Python code that runs inside a box, and the protocol that the host speaks
// with it.
//
// The runner needs Python 3.9 or newer, and only the standard library. The host sends its code to the
// interpreter over standard input, so it need not be installed in the box. The runner forks a process
// in advance, hands it the next program, and after each program kills all processes that are left. While programs
// follow each other, it forks several processes in advance. A process that waits for a program belongs to root until
// the previous program has ended. The runner's files, in the order in which they are loaded:
//
//	boot.py        the interpreter's argument; loads the other files
//	frames.py      the protocol
//	hidden.py      memory for programs' data, which no process of a program has
//	facts.py       what a program imports and calls, for guardrails
//	jsonable.py    a program's result as JSON
//	mcp_client.py  the module that programs import as client.mcp_client
//	session.py     the module that programs import as client.session
//	statevar.py    the variable state
//	pictures.py    figures and tables as artifacts
//	catalogue.py   tool modules, compiled in advance
//	child.py       the process of a program
//	confine.py     keeps programs from leaving anything behind in the box
//	zeros.py       frees pages of zeros before forks
//	runner.py      the parent of these processes
//	network.py     a program's connections; loaded for the first program that needs it
//
// # Protocol
//
// Both sides send frames: a big-endian u32 length, one line of JSON (the header, whose "t" is the type),
// and raw bytes (the body). A frame is at most 1 MiB. One program runs at a time; ids tell calls apart. What programs
// send is in bodies: Python does not clear the memory of headers, and later programs are forked from the runner.
//
//	host to runner   run, go, reply, cancel, next, resume; more (the rest of a message longer than a frame)
//	runner to host   preload, warm, hello, checked, out, call, called, done, left, ready, open
//	both             data, ack, eof, reset
//
// The runner sends preload before it imports each preloaded module, and then hello. After done it looks for what the
// program has left, which no longer delays the result, and sends left. Then it waits briefly, unless the host sends
// next or programs follow each other, and empties the scratch directories before it sends ready. It ends if a program
// has left more there than it can remove at once. If a snapshot is to be taken, the runner sends warm before hello and
// waits for resume; boxes that are restored from the snapshot continue there.
//
// A program with network access connects to a listener of the runner on the box's loopback interface. The
// runner announces each connection with open and an id, counting from 1. Then both sides send data, ack, eof
// and reset. Each side may send at most Window bytes on a connection that the other side has not acknowledged,
// so neither side buffers more than that.
package runner

import (
	"bytes"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Version is the version of the protocol. The runner sends it in warm and hello.
const Version = 1

//go:embed *.py
var files embed.FS

// lazyModule is sent with the other modules, but loaded only when a program needs it.
const lazyModule = "network"

// modules are all modules but boot and lazyModule, in loading order. Each may import those before it.
var modules = []string{
	"frames", "hidden", "facts", "jsonable", "mcp_client", "session", "statevar", "pictures", "catalogue", "child",
	"confine", "zeros", "runner",
}

// Boot is the runner's configuration.
type Boot struct {
	Guest
	Preload  []string `json:"preload"` // modules imported before programs start
	Pause    bool     `json:"pause"`   // send warm and wait for resume before the first fork
	Compiled Compiled `json:"compiled"`
}

// Guest describes the inside of a box.
type Guest struct {
	Python    string   `json:"-"`         // path of the interpreter, 3.9 or newer
	Workspace string   `json:"workspace"` // working directory of programs
	Catalogue string   `json:"catalogue"` // directory of catalogue versions
	Scratch   []string `json:"scratch"`   // emptied after each program; the first one is TMPDIR

	// StaleCaches means that the box's kernel may cache files that the host has changed. The runner then drops
	// the caches before each program. It also resets the mode and times of Workspace, which are not in these caches.
	StaleCaches bool `json:"stale_caches"`
	// OOMEvents is a file whose line oom_kill counts the processes killed by the box's kernel. It may be empty.
	OOMEvents string `json:"oom_events"`
	// CountsThreads means that sysinfo(2) counts exactly the threads of the runner and of programs.
	CountsThreads bool `json:"counts_threads"`
	// HiddenSockets means that sockets with names in Workspace exist only in the box, so that the host cannot
	// remove them, and that the kernel never frees sockets in each other's queues. The runner then searches for both,
	// and for ports of closed connections, which stay in use for a while.
	HiddenSockets bool `json:"hidden_sockets"`
	// SeparateUser means that the runner is root and programs run as UID. Otherwise both run as the same user.
	SeparateUser bool `json:"separate_user"`
	UID          int  `json:"uid"` // user and group of programs, and of no other process
}

// Compiled is the runner, compiled by an interpreter for boxes with the same interpreter. If it is the zero
// value, the runner compiles itself.
type Compiled struct {
	Interpreter string `json:"interpreter"` // its full version
	Bytes       int    `json:"bytes"`       // of Code
	Code        []byte `json:"-"`           // in Python's marshal format
}

// Argv returns the command that starts the runner. The command reads Source from its standard input.
func Argv(python string) []string {
	return []string{python, "-s", "-S", "-c", source("boot")}
}

// Env returns the environment of the interpreter, which programs inherit.
func Env() []string {
	return []string{
		"PATH=/usr/bin:/bin",
		"HOME=/tmp",
		"LANG=C.UTF-8",
		"MALLOC_ARENA_MAX=2", // arenas reserve address space, which counts against the memory limit
		"PYTHONDONTWRITEBYTECODE=1",
		"PYTHONHASHSEED=0",
		"PYTHONUTF8=1",
	}
}

// Client returns the files of the package that programs import as client, by name. Programs use the runner's copy in
// memory; the files are for reading, and for processes that a program starts.
func Client() map[string]string {
	const about = "\"\"\"The program's interface to the fleet.\"\"\"\n"
	return map[string]string{
		"__init__.py": about, "mcp_client.py": source("mcp_client"), "session.py": source("session"),
	}
}

// Source returns what the command of Argv reads first: the configuration and the runner itself, as text and,
// if available, compiled.
func Source(boot Boot) []byte {
	message := struct {
		Boot
		Sources [][2]string `json:"sources"`
		Lazy    string      `json:"lazy"`
	}{Boot: boot, Lazy: source(lazyModule)}
	for _, name := range modules {
		message.Sources = append(message.Sources, [2]string{name, source(name)})
	}
	message.Compiled.Bytes = len(boot.Compiled.Code)
	text, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("runner: encode boot message: %v", err)) // it has only strings, numbers and booleans
	}
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), boot.Compiled.Code...)
}

// source returns the text of a file of the runner, by the name of its module.
func source(name string) string {
	text, err := files.ReadFile(name + ".py")
	if err != nil {
		panic(fmt.Sprintf("runner: %v", err)) // the file is embedded
	}
	return string(bytes.TrimSpace(text)) + "\n"
}
