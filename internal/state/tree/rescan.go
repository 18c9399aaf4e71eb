package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/ignore"
)

// rescan scans the directory and updates nodes. Paths that have not changed since the last scan keep their entries.
func (t *Dir) rescan() error {
	if !t.known { // after an error, or at the first scan
		clear(t.nodes)
	}
	rules, err := t.ignoreRules()
	if err != nil {
		t.known = false
		return err
	}
	started := time.Now()
	skip := func(path string, dir bool) bool { return t.reserved(path) || rules.Match(path, dir) }
	out, err := scan(t.root, t.opts.Quota.Files, skip)
	if tooMany := rules.Err(); err == nil && tooMany != nil {
		err = format.OverLimit(tooMany)
	}
	if err != nil {
		t.known = false
		return err
	}
	if t.excluded, err = t.withoutMountPoints(out.excluded); err != nil {
		t.known = false
		return err
	}
	t.unversioned, t.large = false, out.large
	clear(t.layout)
	t.round++
	for _, f := range out.found {
		n, ok := t.nodes[f.path]
		if !ok {
			n = &node{}
			t.nodes[f.path] = n
		}
		n.touched = ok && n.stat != f.stat
		if !ok || n.racy || n.stat != f.stat {
			n.entry = nil
			n.stat, n.racy = f.stat, f.stat.racy(started)
		}
		n.round = t.round
		t.unversioned = t.unversioned || f.stat.Unversioned
	}
	for path, n := range t.nodes {
		if n.round != t.round {
			delete(t.nodes, path)
		}
	}
	t.known, t.lacking = true, t.lacksLayout()
	return nil
}

// reserved reports whether path is a reserved name, or below one.
func (t *Dir) reserved(path string) bool {
	return slices.Contains(t.opts.Reserved, format.TopDir(path))
}

// withoutMountPoints returns the paths that are not mount points. If it cannot tell, it returns an error, because
// Materialise removes the paths that it returns.
func (t *Dir) withoutMountPoints(paths []string) (others []string, err error) {
	for _, path := range paths {
		mountPoint, err := t.isMountPoint(path)
		if err != nil {
			return nil, fmt.Errorf("scan mount point %q: %w", path, err)
		}
		if !mountPoint {
			others = append(others, path)
		}
	}
	return others, nil
}

// isMountPoint reports whether path is one of the fleet's mount points: an empty directory that no program made. The
// box mounts another directory there, so programs cannot change it, and removing it would end the mount.
func (t *Dir) isMountPoint(path string) (bool, error) {
	if !slices.Contains(t.opts.MountPoints, path) {
		return false, nil
	}
	f, err := t.root.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	st, err := statFile(f)
	if err != nil || t.opts.Owner != nil && t.owns(st) {
		return false, err
	}
	_, err = f.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// ignoreRules returns the rules of the options and of the directory's .workspaceignore file. It gives the owner the
// permission to read the file, as a scan does.
func (t *Dir) ignoreRules() (ignore.Rules, error) {
	var data []byte
	if info, err := t.root.Lstat(ignore.FileName); err == nil && info.Mode().IsRegular() {
		if info.Mode()&0o400 == 0 {
			_ = t.root.Chmod(ignore.FileName, info.Mode()|0o400) // an error shows when the file is opened
		}
		f, err := t.openFile(ignore.FileName)
		if err == nil {
			data, err = ignore.Read(f)
			f.Close()
		}
		if err != nil {
			return ignore.Rules{}, fmt.Errorf("read patterns of excluded paths: %w", err)
		}
	}
	return ExcludeRules(t.opts.Excludes, data), nil
}

// ExcludeRules returns the rules of excludes and of a .workspaceignore file's content.
func ExcludeRules(excludes []string, file []byte) ignore.Rules {
	return ignore.Parse([]byte(strings.Join(excludes, "\n")), file)
}

// dropSpecial excludes sockets, pipes and devices, which cannot be stored.
func (t *Dir) dropSpecial(ctx context.Context) {
	for path, n := range t.nodes {
		if n.stat.Kind == format.KindOther {
			t.opts.Log.WarnContext(ctx, "special file not committed", "workspace", t.ref.String())
			t.excluded = append(t.excluded, path)
			delete(t.nodes, path)
		}
	}
}
