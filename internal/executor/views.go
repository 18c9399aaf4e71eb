package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/executor/runner"
)

// views are the workspace directories in which a program sees its tools as files: servers contains the modules of
// the program's catalogue version, and client the module through which they make calls. Both are read-only mounts:
// programs cannot change, remove or replace them, and they are not stored with the workspace. A nil *views has no
// directories.
type views struct {
	servers string // directory of the host, with a symbolic link to each package of version
	store   string // directory of the host with the catalogue versions; empty if the box has none
	version string // catalogue version that servers shows; empty for none
	broken  bool   // servers may have links to several versions
}

// mountViews makes the views' directories in spec.Views and their mount points in spec.Workspace, and adds the mounts
// to spec.Mounts. It returns nil if spec.Views is empty.
func mountViews(spec *Spec) (*views, error) {
	if spec.Views == "" {
		return nil, nil
	}
	guest := DefaultGuest()
	v := &views{servers: filepath.Join(spec.Views, "servers")}
	for _, m := range spec.Mounts {
		if m.Target == guest.Catalogue {
			v.store = m.Source
		}
	}
	client := filepath.Join(spec.Views, "client")
	err := errors.Join(makeViewDir(spec.Views), makeViewDir(v.servers), makeViewDir(client))
	for name, text := range runner.Client() {
		err = errors.Join(err, writeViewFile(filepath.Join(client, name), text))
	}
	for _, dir := range []string{v.servers, client} {
		name := filepath.Base(dir)
		err = errors.Join(err, makeViewDir(filepath.Join(spec.Workspace, name)))
		spec.Mounts = append(slices.Clip(spec.Mounts),
			Mount{Source: dir, Target: path.Join(guest.Workspace, name), ReadOnly: true})
	}
	if err != nil {
		return nil, fmt.Errorf("make views of the tools: %w", err)
	}
	return v, nil
}

// show makes servers show a catalogue version, or nothing if version is empty. The caller ensures that no program
// runs in the box meanwhile.
func (v *views) show(version string) error {
	if v == nil || version == v.version && !v.broken {
		return nil
	}
	v.broken = true
	old, err := os.ReadDir(v.servers)
	for _, entry := range old {
		err = errors.Join(err, os.Remove(filepath.Join(v.servers, entry.Name())))
	}
	packages, listErr := v.packages(version, "servers")
	err = errors.Join(err, listErr)
	for _, entry := range packages {
		target := path.Join(DefaultGuest().Catalogue, version, "servers", entry.Name())
		err = errors.Join(err, os.Symlink(target, filepath.Join(v.servers, entry.Name())))
	}
	if err != nil {
		return fmt.Errorf("show tools of catalogue version %s: %w", version, err)
	}
	v.version, v.broken = version, false
	return nil
}

// linkSkills adds a link to each saved skill of a catalogue version to the workspace's directory skills, beside the
// workspace's own modules. It returns the links by path, for unlinkSkills. A file that the workspace has under the same
// name stays. If skills is not a directory, no link is added.
func (v *views) linkSkills(workspace, version string) (links map[string]string, err error) {
	if v == nil {
		return nil, nil
	}
	saved, err := v.packages(version, "skills")
	if err != nil || len(saved) == 0 {
		return nil, err
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	links = map[string]string{}
	for _, entry := range saved {
		link := path.Join("skills", entry.Name())
		target := path.Join(DefaultGuest().Catalogue, version, link)
		if strings.Contains(entry.Name(), ".") { // the catalogue's index; the names of modules have no dot
			continue
		}
		if root.Symlink(target, link) == nil {
			links[link] = target
		}
	}
	return links, nil
}

// unlinkSkills removes the links, wherever the program has moved them, so that they are in no version of the workspace.
// The caller ensures that no program runs in the box meanwhile.
func unlinkSkills(workspace string, links map[string]string) error {
	if len(links) == 0 {
		return nil
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return err
	}
	defer root.Close()
	err = regainAccess(root, "skills")
	moved := map[string]bool{} // targets of links that the program has removed, replaced or moved
	for link, target := range links {
		if got, readErr := root.Readlink(link); readErr == nil && got == target {
			err = errors.Join(err, root.Remove(link))
		} else {
			moved[target] = true
		}
	}
	if len(moved) > 0 {
		err = errors.Join(err, removeLinks(root, moved, 1))
	}
	return err
}

// regainAccess gives this process access to a directory if a program has removed it.
func regainAccess(parent *os.Root, name string) error {
	info, err := parent.Lstat(name)
	if err != nil || !info.IsDir() || info.Mode()&0o700 == 0o700 {
		return nil //nolint:nilerr // nothing to do
	}
	return parent.Chmod(name, info.Mode().Perm()|0o700)
}

// removeLinks removes the links to the targets in a directory and below it. It reads few names at once: a program can
// make more hard links to a file than this process has memory for.
func removeLinks(dir *os.Root, targets map[string]bool, depth int) (err error) {
	list, openErr := dir.Open(".")
	if openErr != nil {
		return openErr
	}
	var below []string
	for readErr := error(nil); readErr == nil; {
		var entries []fs.DirEntry
		entries, readErr = list.ReadDir(1024)
		for _, entry := range entries {
			name := entry.Name()
			switch {
			case entry.Type()&fs.ModeSymlink != 0:
				if got, failed := dir.Readlink(name); failed == nil && targets[got] {
					err = errors.Join(err, dir.Remove(name))
				}
			case entry.IsDir() && depth < maxWorkspaceDepth:
				below = append(below, name)
			}
		}
	}
	list.Close()
	for _, name := range below {
		err = errors.Join(err, regainAccess(dir, name))
		sub, openErr := dir.OpenRoot(name)
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		err = errors.Join(err, removeLinks(sub, targets, depth+1), sub.Close())
	}
	return err
}

// packages lists the directory servers or skills of a catalogue version.
func (v *views) packages(version, dir string) ([]fs.DirEntry, error) {
	if version == "" || v.store == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Join(v.store, version, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// makeViewDir makes a directory that every user of a box can read, despite the umask.
func makeViewDir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o755)
}

func writeViewFile(name, text string) error {
	return errors.Join(os.WriteFile(name, []byte(text), 0o644), os.Chmod(name, 0o644))
}
