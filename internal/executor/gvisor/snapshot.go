package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/executor"
)

// snapshotBox is a box that is an executor.Snapshotter. runsc can restore only as root, so other users get plain boxes.
type snapshotBox struct{ *box }

// Snapshot saves the box to dir, which only this user can read, and lets it continue.
func (b snapshotBox) Snapshot(ctx context.Context, dir string) error {
	if err := b.snapshot(ctx, dir); err != nil {
		return fmt.Errorf("snapshot gvisor box %s: %w", b.spec.Name, err)
	}
	return nil
}

func (b snapshotBox) snapshot(ctx context.Context, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	s, err := launch(b.runsc("checkpoint", "--image-path="+dir, "--leave-running", containerID), b.group)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.process.Kill() })
	defer stop()
	_, stderr := drain(s)
	code, err := s.Wait()
	if err == nil && code != 0 {
		err = fmt.Errorf("exit status %d: %s", code, stderr)
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	for _, f := range files {
		err = errors.Join(err, os.Chmod(filepath.Join(dir, f.Name()), 0o600))
	}
	return err
}

// Restore starts the box with the processes of the snapshot in dir. It takes the place of a first Exec of argv.
func (b snapshotBox) Restore(ctx context.Context, dir string, argv []string) (executor.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.addSession(ctx, func() (*session, error) {
		return b.boot(b.config(argv), "restore", "--image-path="+dir)
	})
	if err != nil {
		return nil, fmt.Errorf("restore gvisor box %s: %w", b.spec.Name, err)
	}
	return s, nil
}
