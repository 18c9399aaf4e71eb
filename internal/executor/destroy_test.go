package executor

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor/runner"
)

// stubbornBox is a box whose runner does not end a program. Its destruction fails while failures is positive.
type stubbornBox struct {
	fromHost *io.PipeReader
	stdin    *io.PipeWriter
	stdout   *io.PipeReader
	toHost   *io.PipeWriter
	reads    bool // otherwise the runner reads nothing after its source, and violates the protocol
	deaf     bool // the runner reads nothing at all, and says nothing
	failures int
}

func (b *stubbornBox) Create(context.Context, Spec) (Box, error) { return b, nil }

func (b *stubbornBox) Exec(context.Context, []string) (Session, error) {
	b.fromHost, b.stdin = io.Pipe()
	b.stdout, b.toHost = io.Pipe()
	if b.deaf {
		return b, nil
	}
	go func() {
		var size [4]byte
		_, _ = io.ReadFull(b.fromHost, size[:])
		_, _ = io.CopyN(io.Discard, b.fromHost, int64(binary.BigEndian.Uint32(size[:])))
		_ = runner.Write(b.toHost, map[string]any{"t": "hello", "version": runner.Version, "python": "3"}, nil)
		if b.reads {
			_, _ = io.Copy(io.Discard, b.fromHost)
			return
		}
		_ = runner.Write(b.toHost, map[string]any{"t": "ready"}, nil)
	}()
	return b, nil
}

func (b *stubbornBox) Destroy(context.Context) error {
	if b.failures--; b.failures >= 0 {
		return errors.New("the host is busy")
	}
	return errors.Join(b.fromHost.Close(), b.toHost.Close())
}

func (b *stubbornBox) Stdin() io.WriteCloser { return b.stdin }
func (b *stubbornBox) Stdout() io.Reader     { return b.stdout }
func (b *stubbornBox) Stderr() io.Reader     { return strings.NewReader("") }
func (b *stubbornBox) Wait() (int, error)    { return 137, nil }

// TestDestroyedUntilItSucceeds checks that an execution ends although the box cannot be destroyed at first.
func TestDestroyedUntilItSucceeds(t *testing.T) {
	for name, c := range map[string]struct {
		reads bool
		want  string // code of the failure
	}{
		"while a message is being written": {reads: false, want: errcode.ChannelBroken},
		"after the program's timeout":      {reads: true, want: errcode.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				box := &stubbornBox{reads: c.reads, failures: 3}
				single, err := NewSingle(t.Context(), box, Spec{Workspace: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				v, err := single.Run(t.Context(), Program{TaskID: "x", Code: "1", Limits: Limits{Timeout: time.Second}},
					Hooks{})
				if err != nil || v.Error == nil || v.Error.Code != c.want {
					t.Errorf("Run() = %+v, %+v, %v, want the code %s", v, v.Error, err, c.want)
				}
				if err := single.Close(t.Context()); err != nil || box.failures >= 0 {
					t.Errorf("Close() = %v with %d failures left, want nil and a destroyed box", err, box.failures)
				}
			})
		})
	}
}

// TestRunnerThatReadsNothing checks that the creation of a box ends although its runner does not read its source, and
// the box cannot be destroyed at first.
func TestRunnerThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		box := &stubbornBox{deaf: true, failures: 2}
		_, err := NewSingle(ctx, box, Spec{Workspace: t.TempDir()})
		if !errors.Is(err, context.DeadlineExceeded) || box.failures >= 0 {
			t.Errorf("NewSingle() = %v with %d failures left, want %v and a destroyed box",
				err, box.failures, context.DeadlineExceeded)
		}
	})
}
