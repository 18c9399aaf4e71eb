package microsandbox

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Types of messages.
const (
	kindReady    = "core.ready"
	kindExec     = "core.exec.request"
	kindStarted  = "core.exec.started"
	kindStdin    = "core.exec.stdin"
	kindStdout   = "core.exec.stdout"
	kindStderr   = "core.exec.stderr"
	kindExited   = "core.exec.exited"
	kindFailed   = "core.exec.failed"
	kindAnyError = "core.error"
)

// envelope is the CBOR map in every frame. Payload is one of the types below, in CBOR.
type envelope struct {
	Protocol uint64 `cbor:"v"` // the protocol's version
	Kind     string `cbor:"t"`
	Payload  []byte `cbor:"p"`
}

// execRequest starts a process.
type execRequest struct {
	Cmd     string   `cbor:"cmd"`
	Args    []string `cbor:"args"` // without Cmd
	Env     []string `cbor:"env"`
	Cwd     string   `cbor:"cwd"`
	User    string   `cbor:"user"` // uid:gid
	TTY     bool     `cbor:"tty"`
	Rlimits []rlimit `cbor:"rlimits"`
}

type rlimit struct {
	Resource string `cbor:"resource"`
	Soft     uint64 `cbor:"soft"`
	Hard     uint64 `cbor:"hard"`
}

// streamData are bytes of standard input, output or error. Empty data closes standard input.
type streamData struct {
	Data []byte `cbor:"data"`
}

type exited struct {
	Code *int64 `cbor:"code"` // negative if a signal killed the process
}

// startError is the agent's error when it cannot start a process.
type startError struct {
	Kind    string `cbor:"kind"`
	Message string `cbor:"message"`
}

func (e *startError) Error() string { return fmt.Sprintf("%.40s: %.400s", e.Kind, e.Message) }

// encMode writes struct fields in their order of declaration, and nil slices as empty ones.
var encMode = must(cbor.EncOptions{NilContainers: cbor.NilContainerAsEmpty}.EncMode())

// decMode bounds what a box can make the decoder do. The size of a frame bounds the length of strings.
var decMode = must(cbor.DecOptions{
	MaxNestedLevels:   16,
	MaxArrayElements:  1024,
	MaxMapPairs:       1024,
	DupMapKey:         cbor.DupMapKeyEnforcedAPF,
	FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
}.DecMode())

func must[T any](mode T, err error) T {
	if err != nil {
		panic(err) // invalid options: a bug in this file
	}
	return mode
}

// decode decodes one CBOR map into a struct. It ignores fields that the struct does not have.
func decode(data []byte, into any) error {
	if err := decMode.Unmarshal(data, into); err != nil {
		//nolint:errorlint // io.EOF in a frame must not look like the end of the stream
		return fmt.Errorf("%v: %w", err, errProtocol)
	}
	return nil
}
