package embedded_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/embedded"
)

// A queue whose disk is full stops, so that it does not seem ready, and continues when there is space again. It has all
// that it had acknowledged.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	n := start(t, embedded.NATSOptions{Dir: filepath.Join(dir, "nats")})
	js, err := jetstream.New(dial(t, n, n.Fleet(), "_INBOX.fleet"))
	if err != nil {
		t.Fatal(err)
	}
	const subject = "tasks.default.normal.acme"
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{subject}})
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 110<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	acknowledged := uint64(0)
	for ; err == nil; acknowledged++ {
		_, err = js.Publish(t.Context(), subject, make([]byte, 1<<20))
	}
	acknowledged--
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	responds := func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := stream.Info(ctx)
		return err == nil
	}
	for responds() {
		if clock.Sleep(ctx, 20*time.Millisecond) != nil {
			t.Fatal("the stream still responds, want the server to stop")
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for !responds() {
		if ctx.Err() != nil {
			t.Fatal("the stream does not respond, want the server to start")
		}
	}
	if _, err := js.Publish(ctx, subject, nil); err != nil {
		t.Errorf("Publish with free space = %v, want nil", err)
	}
	info, err := stream.Info(ctx)
	if err != nil || info.State.Msgs < acknowledged+1 { // the publication without an acknowledgement may be stored, too
		t.Errorf("stream = %+v, %v, want at least %d messages", info, err, acknowledged+1)
	}
}
