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

// A syncTool keeps a directory in a bucket. push and pull return how many milliseconds they took, without preparations.
type syncTool interface {
	name() string
	// begin creates an empty destination in a bucket, for the following pushes and pulls.
	begin(ctx context.Context, remote bucket, destination string) error
	push(ctx context.Context, dir string) (float64, error)
	// pull makes dir, which may be empty, equal to the last push. If cold is true, the caches are empty.
	pull(ctx context.Context, dir string, cold bool) (float64, error)
	// end returns the peak memory in MB since begin.
	end() (peak float64, err error)
}

// yardstick finds another program in .cache/yardsticks, beside codefleet, or on PATH.
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
	b.Note("%s was not measured: it is not installed (run make yardsticks)", name)
	return "", false
}

// command is another program, which runs as a process for each push and pull.
type command struct {
	path string
	env  []string
	peak float64 // the largest resident memory of its processes, in MB
}

// run runs a process in dir and returns the milliseconds from its start to its end.
func (c *command) run(ctx context.Context, dir string, args ...string) (float64, error) {
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), c.env...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := bench.Since(began)
	if err != nil {
		const tail = 500
		return 0, fmt.Errorf("%s %s: %w: %s", filepath.Base(c.path), args[0], err, out[max(0, len(out)-tail):])
	}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.peak = max(c.peak, float64(u.Maxrss)/1024)
	}
	return took, nil
}

func (c *command) end() (float64, error) { //nolint:unparam // the error is for the interface
	peak := c.peak
	c.peak = 0
	return peak, nil
}

// rclone mirrors each file to an object. It runs in its fastest correct mode, which compares checksums.
type rclone struct {
	command
	destination string
}

func (*rclone) name() string { return "rclone sync" }

func (r *rclone) begin(_ context.Context, remote bucket, destination string) error {
	r.destination = "b:" + remote.Name + "/rclone/" + destination
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
	return r.sync(ctx, dir, r.destination)
}

func (r *rclone) pull(ctx context.Context, dir string, _ bool) (float64, error) {
	return r.sync(ctx, r.destination, dir)
}

// restic keeps encrypted packs and snapshots.
type restic struct {
	command
	newDir func() string
}

func (*restic) name() string { return "restic" }

func (r *restic) begin(ctx context.Context, remote bucket, destination string) error {
	r.env = []string{
		"RESTIC_REPOSITORY=s3:" + remote.Endpoint + "/" + remote.Name + "/restic/" + destination,
		"RESTIC_PASSWORD=bench", "AWS_ACCESS_KEY_ID=" + remote.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + remote.SecretKey, "RESTIC_CACHE_DIR=" + r.newDir(), "RESTIC_PROGRESS_FPS=0",
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
		args = append(args, "--cache-dir", r.newDir())
	}
	return r.run(ctx, "", args...)
}

// codefleetTool pushes and pulls with a worker's store, in child processes that keep running, as a worker does.
type codefleetTool struct {
	b         *run
	remote    bucket
	workspace string

	pusher, puller    *workspaceChild
	starts            []float64 // ms that each process took to start
	peak              float64   // the largest resident memory, in MB
	withoutExecutable float64   // the same without the pages of the executable
}

func (*codefleetTool) name() string { return "codefleet" }

func (c *codefleetTool) begin(ctx context.Context, remote bucket, destination string) (err error) {
	c.workspace, c.remote, c.peak, c.withoutExecutable = destination, remote, 0, 0
	if c.pusher, err = c.b.startWorkspaceChild(ctx, c.remote); err != nil {
		return err
	}
	c.puller, err = c.b.startWorkspaceChild(ctx, c.remote)
	return err
}

func (c *codefleetTool) push(_ context.Context, dir string) (float64, error) {
	return c.pusher.call("push", c.workspace, dir)
}

func (c *codefleetTool) pull(ctx context.Context, dir string, cold bool) (float64, error) {
	if cold {
		if err := c.stop(&c.puller); err != nil {
			return 0, err
		}
		var err error
		if c.puller, err = c.b.startWorkspaceChild(ctx, c.remote); err != nil {
			return 0, err
		}
	}
	return c.puller.call("pull", c.workspace, dir)
}

func (c *codefleetTool) stop(p **workspaceChild) error {
	if *p == nil {
		return nil
	}
	c.peak = max(c.peak, (*p).last.Peak)
	c.withoutExecutable = max(c.withoutExecutable, (*p).last.Peak-(*p).last.Program)
	c.starts = append(c.starts, (*p).started)
	err := (*p).stop()
	*p = nil
	return err
}

func (c *codefleetTool) end() (float64, error) {
	err := errors.Join(c.stop(&c.pusher), c.stop(&c.puller))
	return c.peak, err
}

// yardsticks returns the other programs that are installed.
func (b *run) yardsticks(ctx context.Context) []syncTool {
	var tools []syncTool
	if path, ok := b.yardstick(ctx, "rclone", "version"); ok {
		tools = append(tools, &rclone{command: command{path: path}})
	}
	if path, ok := b.yardstick(ctx, "restic", "version"); ok {
		tools = append(tools, &restic{command: command{path: path}, newDir: b.NewDir})
	}
	return tools
}
