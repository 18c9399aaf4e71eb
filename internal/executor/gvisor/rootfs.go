package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
)

func megabytes(n int) string { return strconv.Itoa(n) + "m" }

// shortHash keeps names apart that would otherwise be equal.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// hostParts is what a box sees of the host when no root file system is configured:
// programs and libraries of the distribution, time zones, and nothing that a person
// or a service put on the machine.
var hostParts = []string{"/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo"}

// hostLinks are links to the parts on merged systems and parts of their own elsewhere.
var hostLinks = []string{"/bin", "/lib", "/lib32", "/lib64"}

// prepareRoot returns the directory of the root file system, and its interpreter. Without a configured one
// it is a directory of ours with mount points and the little of /etc that Python needs.
// The caller holds d.mu.
func (d *Driver) prepareRoot(ownerDir string) (root, python string, err error) {
	if python, err = findPython(d.opts.Rootfs); err != nil {
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

// makeMountPoints makes those that a configured root file system lacks, once: the
// engine would make them too, and say less when it cannot. One that is a link is
// refused: it is somebody's image, and the host's files are not to be reached by it.
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
					err = root.Chmod(at, 0o755) // whatever the umask
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

// hostMounts are the mounts that make a prepared root a whole one.
func (d *Driver) hostMounts(spec executor.Spec) []executor.Mount {
	if d.opts.Rootfs != "" || spec.Image != "" {
		return nil
	}
	return partsOf("/")
}

// partsOf lists the parts that the host at the directory has.
func partsOf(host string) []executor.Mount {
	var mounts []executor.Mount
	for _, part := range slices.Concat(hostParts, hostLinks) {
		if info, err := os.Lstat(filepath.Join(host, part)); err == nil && info.IsDir() {
			mounts = append(mounts, executor.Mount{Source: filepath.Join(host, part), Target: part, ReadOnly: true})
		}
	}
	return mounts
}

// buildRoot fills root; what is there already is kept.
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

// authorities are where distributions keep the certificates of public authorities, in one file.
// Programs that may use the network look for the first.
var authorities = []string{"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem"}

// buildEtc writes the users of a box, and copies the certificates of authorities and
// what the dynamic linker needs to find libraries of the distribution: its cache and
// the links of alternatives.
func buildEtc(root, host string) error {
	files := map[string]string{ //nolint:gosec // users without passwords
		"etc/passwd": "root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
		"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
		"etc/hosts":  "127.0.0.1 localhost box\n",
	}
	if cache, err := os.ReadFile(filepath.Join(host, "etc/ld.so.cache")); err == nil {
		files["etc/ld.so.cache"] = string(cache)
	}
	for _, bundle := range authorities {
		if text, err := os.ReadFile(filepath.Join(host, bundle)); err == nil {
			files[authorities[0]] = string(text)
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
		if target, err := os.Readlink(link); err != nil || !shown(target) {
			continue
		}
		if err := copyLink(link, filepath.Join(root, "etc/alternatives", filepath.Base(link))); err != nil {
			return err
		}
	}
	return nil
}

// shown tells whether a path of the host is one that boxes see. Most alternatives are pages of manuals,
// which they do not, and to make a link takes a disk as long as to make a file.
func shown(path string) bool {
	return slices.ContainsFunc(slices.Concat(hostParts, hostLinks), func(part string) bool { return strings.HasPrefix(path, part+"/") })
}

// makeDir makes a directory that every user of a box can enter, whatever the umask.
func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

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

// copyLink makes to the symbolic link that from is; anything else is left out.
func copyLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return nil //nolint:nilerr // not a link
	}
	if err := os.Symlink(target, to); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
