package s3_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

const (
	mirrorVariable = "CODEFLEET_TEST_KILL_MIRROR"
	shortLease     = 20 * time.Millisecond // so that the leases of killed processes expire soon
)

// mirrorPlan tells a process to commit and mirror, and before which write to the mirror to die.
type mirrorPlan struct {
	S3, Mirror s3.Options
	Nth        int64
	Number     int // number of the commit
}

var mirrorRef = state.Ref{Tenant: "acme", Workspace: "main"}

// mirrorEdits returns the edits of a commit. They turn x from a file into a directory or back, and use names that S3
// does not permit.
func mirrorEdits(number int) func(func(state.Edit, error) bool) {
	content := func(path string) state.Edit {
		return state.Edit{Path: path, Kind: state.File, Content: strings.NewReader(fmt.Sprint(path, " ", number))}
	}
	return func(yield func(state.Edit, error) bool) {
		list := []state.Edit{
			{Path: "x"},
			content("x/y"), content("n"), content("50%\x01 ü"),
			{Path: "d"},
			content(fmt.Sprint("d/", number)),
		}
		if number%2 == 0 {
			list[1] = content("x")
		}
		if number == 1 {
			list = append(list, state.Edit{
				Path: "large", Kind: state.File,
				Content: strings.NewReader(strings.Repeat(statetest.Random(1, 1000), 20_000)),
			})
		}
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// inMirror returns the mirrored files of a commit.
func inMirror(number int) map[string]string {
	files := map[string]string{"large": strings.Repeat(statetest.Random(1, 1000), 20_000)}
	for e := range mirrorEdits(number) {
		if e.Kind == state.File && e.Path != "large" {
			text, _ := io.ReadAll(e.Content)
			files[strings.NewReplacer("%", "%25", "\x01", "%01").Replace(e.Path)] = string(text)
		}
	}
	return files
}

// commitAndMirror is the main function of the process.
func commitAndMirror(plan mirrorPlan) error {
	bucket, err := s3.Open(plan.S3)
	if err != nil {
		return err
	}
	target, err := s3.Open(plan.Mirror)
	if err != nil {
		return err
	}
	killer := &mirrorKiller{nth: nth{Objects: target, left: plan.Nth}, files: target}
	store := state.New(bucket, state.Options{})
	mirrored := mirror.Follow(store.Repo(), killer, mirror.Options{Lease: shortLease})
	if _, err := store.Edit(context.Background(), mirrorRef, state.EditOptions{Base: state.Newest},
		mirrorEdits(plan.Number)); err != nil {
		return err
	}
	mirrored.Close(context.Background())
	return nil
}

// mirrorKiller is an nth that also counts the files that a mirror writes.
type mirrorKiller struct {
	nth

	files *s3.Objects
}

func (k *mirrorKiller) PutFile(ctx context.Context, key string, r io.Reader, size int64) error {
	k.count()
	return k.files.PutFile(ctx, key, r, size)
}

// TestKillMirror kills a process before each write to the mirror. Its commit must count, mirror.json must list the
// generations to which files may belong, and the next Update must complete the mirror.
func TestKillMirror(t *testing.T) {
	opts := gateway(t)
	bucket := open(t, opts)
	plain := opts
	plain.Prefix = "_mirror/of it"
	target := open(t, plain)
	run := func(n int64, number int) bool {
		plan := mirrorPlan{opts, plain, n, number}
		plan.S3.Transport, plan.Mirror.Transport = nil, nil // the process makes them
		status, ok := runPlan(t, mirrorVariable, plan).Sys().(syscall.WaitStatus)
		killed := ok && status.Signaled() && status.Signal() == syscall.SIGKILL
		if !killed && status.ExitStatus() != 0 {
			t.Fatalf("write %d: process ended with %v, want it killed or successful", n, status)
		}
		return killed
	}
	number := 1
	if run(0, number) {
		t.Fatal("killed without a reason")
	}
	if diff := cmp.Diff(inMirror(1), statetest.MirroredFiles(t, target)); diff != "" {
		t.Fatalf("the mirror of the first commit (-want +got):\n%.1000s", diff)
	}
	kills := 0
	for n := int64(1); ; n++ {
		number++
		killed := run(n, number)
		if !killed {
			break
		}
		kills++
		obj, err := target.Get(t.Context(), "acme/main/mirror.json", objects.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var mark struct {
			Generation int
			Touched    []int
		}
		if err := json.Unmarshal(obj.Data, &mark); err != nil || mark.Generation != number-1 || n > 1 &&
			len(mark.Touched) == 0 {
			t.Errorf("killed before write %d: mirror.json = %s, %v; want generation %d, and %d as touched", n, obj.Data,
				err, number-1, number)
		}
		if n%2 == 0 { // the next commit must complete the mirror too
			number++
			run(0, number)
		}
		store := state.New(bucket, state.Options{})
		out, err := mirror.Follow(store.Repo(), target, mirror.Options{Lease: shortLease}).Update(t.Context(),
			mirrorRef)
		if err != nil || out.Generation != int64(number) {
			t.Errorf("killed before write %d: Update() = %+v, %v, want generation %d", n, out, err, number)
		}
		if diff := cmp.Diff(inMirror(number), statetest.MirroredFiles(t, target)); diff != "" {
			t.Errorf("killed before write %d: the mirror afterwards (-want +got):\n%.1000s", n, diff)
		}
	}
	t.Logf("%d kills", kills)
	if least := 8; kills < least { // two marks, two removals and four files
		t.Errorf("%d kills, want at least %d", kills, least)
	}
}

// TestNamesOnDurableStore checks that the embedded store syncs files with unusual names to the disk.
func TestNamesOnDurableStore(t *testing.T) {
	server, err := embedded.StartS3(t.Context(), embedded.S3Options{
		Dir: t.TempDir(), Addr: "127.0.0.1:0", AccessKey: "access", SecretKey: "secret-secret", Bucket: "fleet",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	transport := s3.NewTransport()
	defer transport.CloseIdleConnections()
	target := open(t, s3.Options{
		Endpoint: "http://" + server.Endpoint(), Bucket: "fleet", AccessKey: "access", SecretKey: "secret-secret",
		Transport: transport,
	})
	for _, name := range []string{"50%25.txt", "a%2525", "d/ü +&=?#:;@ x", "100%", "%zz", "a/..c"} {
		if err := target.PutFile(t.Context(), name, strings.NewReader(name), int64(len(name))); err != nil {
			t.Errorf("PutFile(%q) = %v, want nil", name, err)
			continue
		}
		obj, err := target.Get(t.Context(), name, objects.GetOptions{})
		if err != nil || string(obj.Data) != name {
			t.Errorf("Get(%q) = %q, %v, want its name", name, obj.Data, err)
		}
	}
}
