package gvisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
)

// hostParts are the directories of the host that a box sees if no root file system is configured: executables
// and libraries of the distribution, and time zones. They contain nothing that users or services have installed.
var hostParts = []string{"/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo"}

// hostLinks are symbolic links to hostParts on systems with a merged /usr, and directories elsewhere.
var hostLinks = []string{"/bin", "/lib", "/lib32", "/lib64"}

// prepareRoot returns the directory of the root file system and the path of its interpreter. Unless a root file
// system is configured, it builds a directory with mount points and the few files of /etc that Python needs. d.mu
// is held.
func (d *Driver) prepareRoot(ctx context.Context, ownerDir string) (root, python string, err error) {
	if python, err = findPython(ctx, d.opts.Rootfs); err != nil {
		return "", "", err
	}
	if d.opts.Rootfs != "" {
		return d.opts.Rootfs, python, makeMountPoints(d.opts.Rootfs)
	}
	root = filepath.Join(ownerDir, "root")
	if err := buildRoot(root, "/"); err != nil {
		return "", "", fmt.Errorf("prepare root file system: %w", err)
	}
	return root, python, nil
}

// mountPoints are the directories that a root file system must have.
var mountPoints = []string{"proc", "sys", "dev", "tmp", "workspace", "opt/codefleet", "opt/packages"}

// makeMountPoints makes the mount points that a configured root file system lacks. The engine would also make
// them, but with a less clear error. A mount point that is a symbolic link is refused, because an image must not
// reach the host's files.
func makeMountPoints(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, point := range mountPoints {
		for _, at := range []string{filepath.Dir(point), point} {
			info, err := root.Lstat(at)
			if errors.Is(err, fs.ErrNotExist) {
				if err = root.Mkdir(at, 0o755); err == nil {
					err = root.Chmod(at, 0o755) // despite the umask
				}
			} else if err == nil && !info.IsDir() {
				err = fs.ErrExist
			}
			if err != nil {
				return fmt.Errorf("the root file system %s needs the directory /%s: %w", dir, at, err)
			}
		}
	}
	return nil
}

// hostMounts returns the mounts of the host's directories that a box sees: none if the box has an image or a configured
// root file system.
func (d *Driver) hostMounts(spec executor.Spec) []executor.Mount {
	if d.opts.Rootfs != "" || spec.Image != "" {
		return nil
	}
	return partsOf("/")
}

// partsOf returns mounts of the hostParts and hostLinks that are directories of the host. Tests pass another
// directory as host.
func partsOf(host string) []executor.Mount {
	var mounts []executor.Mount
	for _, part := range slices.Concat(hostParts, hostLinks) {
		if info, err := os.Lstat(filepath.Join(host, part)); err == nil && info.IsDir() {
			mounts = append(mounts, executor.Mount{Source: filepath.Join(host, part), Target: part, ReadOnly: true})
		}
	}
	return mounts
}

// buildRoot makes the directories, links and files of root that are missing or out of date.
func buildRoot(root, host string) error {
	dirs := append([]string{"etc", "etc/ssl", "etc/ssl/certs"}, mountPoints...)
	for _, part := range partsOf(host) {
		dirs = append(dirs, part.Target)
	}
	for _, dir := range append([]string{"", "opt", "usr", "usr/share"}, dirs...) {
		if err := makeDir(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	for _, link := range hostLinks {
		if err := copyLink(filepath.Join(host, link), filepath.Join(root, link)); err != nil {
			return err
		}
	}
	return buildEtc(root, host)
}

// caFiles are the files in which distributions keep the certificates of public authorities. In a box, they are at
// the first path.
var caFiles = []string{
	"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem",
}

// buildEtc writes a box's users, and copies the CA certificates and what the dynamic linker needs to find the
// distribution's libraries: its cache and the links of alternatives.
func buildEtc(root, host string) error {
	files := map[string]string{ //nolint:gosec // users without passwords
		"etc/passwd": "root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
		"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
		"etc/hosts":  "127.0.0.1 localhost box\n",
	}
	if cache, err := os.ReadFile(filepath.Join(host, "etc/ld.so.cache")); err == nil {
		files["etc/ld.so.cache"] = string(cache)
	}
	for _, bundle := range caFiles {
		if text, err := os.ReadFile(filepath.Join(host, bundle)); err == nil {
			files[caFiles[0]] = string(text)
			break
		}
	}
	for name, content := range files {
		if err := replaceFile(filepath.Join(root, name), content); err != nil {
			return err
		}
	}
	links, err := filepath.Glob(filepath.Join(host, "etc/alternatives/*"))
	if err != nil || len(links) == 0 {
		return err
	}
	if err := makeDir(filepath.Join(root, "etc/alternatives")); err != nil {
		return err
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || !visible(target) {
			continue
		}
		if err := copyLink(link, filepath.Join(root, "etc/alternatives", filepath.Base(link))); err != nil {
			return err
		}
	}
	return nil
}

// visible reports whether boxes see a path of the host. They do not see manual pages, which most alternatives
// are; creating those links would only take time.
func visible(path string) bool {
	return slices.ContainsFunc(slices.Concat(hostParts, hostLinks), func(part string) bool {
		return strings.HasPrefix(path, part+"/")
	})
}

// makeDir makes a directory that every user of a box can enter, despite the umask.
func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// replaceFile makes path a file with the content, unless it already is. Readers see the old file or the new one.
func replaceFile(path, content string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return nil
	}
	temp := path + ".new"
	if err := errors.Join(os.WriteFile(temp, []byte(content), 0o644), os.Chmod(temp, 0o644)); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// copyLink copies a symbolic link to path, in place of another link. It ignores other files.
func copyLink(link, path string) error {
	target, err := os.Readlink(link)
	if err != nil {
		return nil //nolint:nilerr // not a link
	}
	if old, err := os.Readlink(path); err == nil && old != target {
		temp := path + "." + rand.Text()
		if err := os.Symlink(target, temp); err != nil {
			return err
		}
		return os.Rename(temp, path) // at no time without the link: boxes may be running
	}
	if err := os.Symlink(target, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
