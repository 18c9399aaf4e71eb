package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/bench"
)

// A syncTool keeps a directory in a bucket. Its methods return how many milliseconds they took, without
// preparations.
type syncTool interface {
	name() string
	// begin creates an empty place in a bucket, for the following pushes and pulls.
	begin(ctx context.Context, remote bucket, place string) error
	push(ctx context.Context, dir string) (float64, error)
	// pull makes dir, which may be empty, equal to the last push. Cold: with empty caches.
	pull(ctx context.Context, dir string, cold bool) (float64, error)
	// end releases the place and returns the peak memory, in MB.
	end() (peak float64, err error)
}

// yardstick finds another program: in .cache/yardsticks, beside codefleet, or on PATH.
func (b *run) yardstick(ctx context.Context, name string, versionArg string) (path string, ok bool) {
	dir := filepath.Dir(b.Program)
	for _, candidate := range []string{
		filepath.Join(dir, "..", ".cache", "yardsticks", name), filepath.Join(dir, name), name,
	} {
		found, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, found, versionArg).Output()
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(out), "\n")
		b.Note("yardstick: %s", first)
		return found, true
	}
	b.Note("%s is not measured: it is not installed (make yardsticks)", name)
	return "", false
}

// outside is another program, run as a process for each push and pull.
type outside struct {
	path string
	env  []string
	peak float64 // MB resident, at most, of any run
}

// run returns the milliseconds from the start of the process in dir to its end.
func (o *outside) run(ctx context.Context, dir string, args ...string) (float64, error) {
	cmd := exec.CommandContext(ctx, o.path, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), o.env...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := bench.Since(began)
	if err != nil {
		const tail = 500
		return 0, fmt.Errorf("%s %s: %w: %s", filepath.Base(o.path), args[0], err, out[max(0, len(out)-tail):])
	}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.peak = max(o.peak, float64(u.Maxrss)/1024)
	}
	return took, nil
}

func (o *outside) end() (float64, error) { //nolint:unparam // its processes have ended
	peak := o.peak
	o.peak = 0
	return peak, nil
}

// rclone mirrors each file to an object, in its fastest correct mode: it compares contents by checksum.
type rclone struct {
	outside
	place string
}

func (*rclone) name() string { return "rclone sync" }

func (r *rclone) begin(_ context.Context, remote bucket, place string) error {
	r.place = "b:" + remote.Name + "/rclone/" + place
	r.env = []string{
		"RCLONE_CONFIG_B_TYPE=s3", "RCLONE_CONFIG_B_PROVIDER=Other", "RCLONE_CONFIG_B_ENDPOINT=" + remote.Endpoint,
		"RCLONE_CONFIG_B_ACCESS_KEY_ID=" + remote.AccessKey, "RCLONE_CONFIG_B_SECRET_ACCESS_KEY=" + remote.SecretKey,
		"RCLONE_CONFIG_B_REGION=us-east-1", "RCLONE_CONFIG_B_FORCE_PATH_STYLE=true",
		"RCLONE_CONFIG_B_NO_CHECK_BUCKET=true",
	}
	return nil
}

func (r *rclone) sync(ctx context.Context, from, to string) (float64, error) {
	return r.run(ctx, "", "sync", "--config=", from, to, "--checksum", "--fast-list", "--transfers", "32", "--checkers",
		"32", "--log-level", "ERROR")
}

func (r *rclone) push(ctx context.Context, dir string) (float64, error) {
	return r.sync(ctx, dir, r.place)
}

func (r *rclone) pull(ctx context.Context, dir string, _ bool) (float64, error) {
	return r.sync(ctx, r.place, dir)
}

// restic keeps encrypted packs and snapshots.
type restic struct {
	outside
	NewDir func() string
}

func (*restic) name() string { return "restic" }

func (r *restic) begin(ctx context.Context, remote bucket, place string) error {
	r.env = []string{
		"RESTIC_REPOSITORY=s3:" + remote.Endpoint + "/" + remote.Name + "/restic/" + place, "RESTIC_PASSWORD=bench",
		"AWS_ACCESS_KEY_ID=" + remote.AccessKey, "AWS_SECRET_ACCESS_KEY=" + remote.SecretKey,
		"RESTIC_CACHE_DIR=" + r.NewDir(), "RESTIC_PROGRESS_FPS=0",
	}
	_, err := r.run(ctx, "", "init", "--quiet", "-o", "s3.bucket-lookup=path")
	return err
}

func (r *restic) push(ctx context.Context, dir string) (float64, error) {
	return r.run(ctx, dir, "backup", "--quiet", "-o", "s3.bucket-lookup=path", ".")
}

func (r *restic) pull(ctx context.Context, dir string, cold bool) (float64, error) {
	args := []string{"restore", "latest", "--quiet", "-o", "s3.bucket-lookup=path", "--delete", "--target", dir}
	if cold {
		args = append(args, "--cache-dir", r.NewDir())
	}
	return r.run(ctx, "", args...)
}

// ours is the workspace engine, in a process that is already running, like a worker.
type ours struct {
	b      *run
	remote bucket
	place  string

	pusher, puller *engineProcess
	starts         []float64 // ms, of its processes
	peak           float64   // MB
	engine         float64   // MB, of peak, without the program's file
}

func (*ours) name() string { return "codefleet" }

func (o *ours) begin(ctx context.Context, remote bucket, place string) (err error) {
	o.place, o.remote, o.peak, o.engine = place, remote, 0, 0
	if o.pusher, err = o.b.startEngine(ctx, o.remote); err != nil {
		return err
	}
	o.puller, err = o.b.startEngine(ctx, o.remote)
	return err
}

func (o *ours) push(_ context.Context, dir string) (float64, error) {
	return o.pusher.call("push", o.place, dir)
}

func (o *ours) pull(ctx context.Context, dir string, cold bool) (float64, error) {
	if cold {
		if err := o.release(&o.puller); err != nil {
			return 0, err
		}
		var err error
		if o.puller, err = o.b.startEngine(ctx, o.remote); err != nil {
			return 0, err
		}
	}
	return o.puller.call("pull", o.place, dir)
}

func (o *ours) release(p **engineProcess) error {
	if *p == nil {
		return nil
	}
	o.peak = max(o.peak, (*p).last.Peak)
	o.engine = max(o.engine, (*p).last.Peak-(*p).last.Program)
	o.starts = append(o.starts, (*p).started)
	err := (*p).stop()
	*p = nil
	return err
}

func (o *ours) end() (float64, error) {
	err := errors.Join(o.release(&o.pusher), o.release(&o.puller))
	return o.peak, err
}

// yardsticks returns the other programs that are installed.
func (b *run) yardsticks(ctx context.Context) []syncTool {
	var tools []syncTool
	if path, ok := b.yardstick(ctx, "rclone", "version"); ok {
		tools = append(tools, &rclone{outside: outside{path: path}})
	}
	if path, ok := b.yardstick(ctx, "restic", "version"); ok {
		tools = append(tools, &restic{outside: outside{path: path}, NewDir: b.NewDir})
	}
	return tools
}
