// Package runner is what codefleet runs inside a box, and the protocol spoken with it.
//
// The runner is Python (3.9 or newer, standard library only), sent to the interpreter over its
// standard input: nothing of it needs to be in the box. It keeps one process forked ahead, hands it
// the next program, and after the task kills all that the program left. The files, in the order in
// which they are needed: boot.py is the interpreter's argument and loads the others; frames.py the
// protocol; facts.py and jsonable.py what is read from a program and its result; mcp_client.py the
// module that programs import as client.mcp_client; catalogue.py tools that are compiled ahead; child.py the process of a program; runner.py the
// process above it; network.py, loaded for the first program that asks, what carries its connections.
//
// The protocol is frames: a big-endian u32 length, one line of JSON (the header, whose "t" is the
// type), raw bytes (the body). A frame is at most 1 MiB. Host to runner: run, go, reply, cancel, next,
// and more, which carries what did not fit into the first frame of a long message. Runner to host:
// hello, checked, out, call, called, done, ready. One program at a time; ids tell calls apart.
// Between done and ready the runner rests for a moment, unless the host says next.
// It says preload before each module that it imports ahead. A runner that is to be saved says warm
// before hello, and waits for resume: what it is by then runs on in other boxes, too.
//
// A program that may use the network finds a listener of the runner on its loopback. Each connection
// to it is one of the host's to answer: open (from the runner, ids counting from 1), then data, ack,
// eof and reset both ways. Each side may send Window bytes on a connection, and as many more as the
// other has acknowledged: neither has to keep more than that.
package runner

import (
	"bytes"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Version of the protocol, which hello repeats.
const Version = 1

//go:embed *.py
var files embed.FS

// later is loaded when a program needs it.
const later = "network"

// modules are loaded in this order, each by those after it.
var modules = []string{"frames", "facts", "jsonable", "mcp_client", "catalogue", "child", "runner"}

// Boot is the runner's configuration.
type Boot struct {
	Workspace string   `json:"workspace"`
	Catalogue string   `json:"catalogue"`
	Scratch   []string `json:"scratch"` // the first one is TMPDIR
	Stale     bool     `json:"stale"`   // the kernel of the box has to forget names and attributes before a program
	OOM       string   `json:"oom"`     // file that counts what the kernel of the box killed for want of memory, in its line oom_kill; may be empty
	Counts    bool     `json:"counts"`  // sysinfo(2) of the box counts the runner's threads and those of programs, and no others
	Split     bool     `json:"split"`   // the program runs as UID
	UID       int      `json:"uid"`
	Preload   []string `json:"preload"` // modules that programs find imported already
	Pause     bool     `json:"pause"`   // say warm and wait for resume, before the first child is there
	Compiled  Compiled `json:"compiled"`
}

// Compiled is the runner as an interpreter compiled it: another box with the same interpreter need
// not do so again. The zero value makes it compile.
type Compiled struct {
	Interpreter string `json:"interpreter"` // its whole version
	Bytes       int    `json:"bytes"`       // of Code
	Code        []byte `json:"-"`           // Python's marshal format
}

// Argv is the command that starts the runner. It waits for Source on its standard input.
func Argv(python string) []string {
	return []string{python, "-s", "-S", "-c", source("boot")}
}

// Env is the environment the runner needs, for Python's start and for its programs.
func Env() []string {
	return []string{
		"PATH=/usr/bin:/bin",
		"HOME=/tmp",
		"LANG=C.UTF-8",
		"MALLOC_ARENA_MAX=2", // threads must not use up the address space that a program may have
		"PYTHONDONTWRITEBYTECODE=1",
		"PYTHONHASHSEED=0",
		"PYTHONUTF8=1",
	}
}

// Source is what the started command reads first: its configuration and the runner itself, as text
// and, where that is known, compiled.
func Source(boot Boot) []byte {
	message := struct {
		Boot
		Sources [][2]string `json:"sources"`
		Later   string      `json:"later"`
	}{Boot: boot, Later: source(later)}
	for _, name := range modules {
		message.Sources = append(message.Sources, [2]string{name, source(name)})
	}
	message.Compiled.Bytes = len(boot.Compiled.Code)
	text, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("runner: encode boot message: %v", err)) // strings and numbers only
	}
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), boot.Compiled.Code...)
}

func source(name string) string {
	text, err := files.ReadFile(name + ".py")
	if err != nil {
		panic(fmt.Sprintf("runner: %v", err)) // embedded
	}
	return string(bytes.TrimSpace(text)) + "\n"
}
