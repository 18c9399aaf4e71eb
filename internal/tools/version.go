package tools

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// Version is an immutable version of the catalogue: modules, definitions and approvals. The same files
// have the same ID on every machine.
type Version struct {
	ID      string // 26 characters of the uncompressed archive's SHA-256 hash, in base32
	Archive []byte // gzipped tar
}

const (
	maxArchive = 256 << 20 // bytes of the uncompressed archive

	// Keys of tenants' objects begin with the tenant's name, which never begins with an underscore.
	keyVersions = "_catalogue/versions/"
	keyTenants  = "_catalogue/tenants/"
	keyCurrent  = "_catalogue/HEAD"
)

func versionKey(id string) string { return keyVersions + id + ".tar.gz" }

func overlayKey(tenant, id string) string { return keyTenants + tenant + "/" + id + ".tar.gz" }

var versionID = regexp.MustCompile(`^[a-z2-7]{26}$`)

// Pack returns the catalogue's current content as a version. It leaves out broken files. It generates each server's
// __init__.py unless that has code written by hand, so that `from servers.mine import f` imports the function.
func (c *Catalogue) Pack(ctx context.Context) (Version, *Listing, error) {
	listing, err := c.Read(ctx)
	if err != nil {
		return Version{}, nil, err
	}
	files, err := c.filesToPack(listing)
	if err != nil {
		return Version{}, nil, fmt.Errorf("pack catalogue %s: %w", c.dir, err)
	}
	v, err := pack(addPrefix(serversDir, files))
	return v, listing, err
}

func (c *Catalogue) filesToPack(listing *Listing) (map[string][]byte, error) {
	files := map[string][]byte{"__init__.py": Support}
	root, err := os.OpenRoot(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	broken := map[string]bool{}
	for _, b := range listing.Broken {
		broken[b.Path] = true
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
		case e.IsDir() && (strings.Count(name, "/") > 0 || ignored(e) || checkServerDir(e) != ""):
			return fs.SkipDir
		case e.Type().IsRegular() && isPackable(name) && !broken[text.Printable(name)]:
			files[name], err = fs.ReadFile(root.FS(), name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	addInits(files, listing)
	return files, nil
}

func isPackable(name string) bool {
	if name == ApprovalsFile {
		return true
	}
	ext := path.Ext(name)
	return strings.Contains(name, "/") && !strings.HasPrefix(path.Base(name), ".") &&
		(ext == ".py" || ext == ".json" || ext == ".md")
}

// addInits adds an __init__.py to each server that has none, a generated one, or one without code.
func addInits(files map[string][]byte, listing *Listing) {
	exports := map[string][]Export{}
	for _, t := range listing.Tools {
		dir, file := path.Split(t.Path)
		exports[dir] = append(exports[dir], Export{strings.TrimSuffix(file, ".py"), t.Function, t.Name})
	}
	for dir, list := range exports {
		name := dir + "__init__.py"
		if !HasOwnInit(files[name]) {
			files[name] = PackageInit("Tools of "+strings.TrimSuffix(dir, "/")+".", list)
		}
	}
}

// HasOwnInit reports whether an __init__.py has code that was written by hand.
func HasOwnInit(src []byte) bool { return !bytes.HasPrefix(src, []byte(packageMark)) && hasCode(src) }

// hasCode reports whether a Python file has more than comments and a docstring. A file that cannot be scanned has code.
func hasCode(src []byte) bool {
	lines, err := newScanner(src).logicalLines()
	if err != nil || len(lines) != 1 {
		return err != nil || len(lines) > 0
	}
	statement := &scanner{src: strings.TrimLeft(lines[0].text, "rRuU")}
	isString := strings.HasPrefix(statement.src, `"`) || strings.HasPrefix(statement.src, `'`)
	return !isString || statement.skipString() != nil || statement.pos < len(statement.src)
}

// The directories of a version.
const (
	serversDir = "servers/"
	skillsDir  = "skills/"
)

// addPrefix returns the files with dir before their paths.
func addPrefix(dir string, files map[string][]byte) map[string][]byte {
	out := make(map[string][]byte, len(files))
	for name, data := range files {
		out[dir+name] = data
	}
	return out
}

// cutPrefix returns the files of a directory, keyed by path relative to it.
func cutPrefix(dir string, files map[string][]byte) map[string][]byte {
	out := make(map[string][]byte, len(files))
	for name, data := range files {
		if rest, ok := strings.CutPrefix(name, dir); ok {
			out[rest] = data
		}
	}
	return out
}

// pack packs files that are keyed by path relative to the version's directory.
func pack(files map[string][]byte) (Version, error) {
	var tarball bytes.Buffer
	tw := tar.NewWriter(&tarball)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{
			Name: name, Mode: 0o644, Size: int64(len(files[name])),
			ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
		}
		if err := tw.WriteHeader(h); err != nil {
			return Version{}, err
		}
		if _, err := tw.Write(files[name]); err != nil {
			return Version{}, err
		}
	}
	if err := tw.Close(); err != nil {
		return Version{}, err
	}
	if tarball.Len() > maxArchive {
		return Version{}, fmt.Errorf("pack catalogue: it is %d bytes; the limit is %d", tarball.Len(), maxArchive)
	}
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	if _, err := zw.Write(tarball.Bytes()); err != nil {
		return Version{}, err
	}
	if err := zw.Close(); err != nil {
		return Version{}, err
	}
	return Version{ID: versionIDOf(tarball.Bytes()), Archive: out.Bytes()}, nil
}

func versionIDOf(tarball []byte) string {
	sum := sha256.Sum256(tarball)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}

// unpackOnce verifies the archive against the ID and writes its files to dir/<id>, atomically. It
// does nothing if dir/<id> exists.
func (v Version) unpackOnce(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, v.ID)); err == nil {
		return nil
	}
	files, err := v.files()
	if err == nil {
		err = writeTree(dir, v.ID, files)
	}
	if err != nil {
		return fmt.Errorf("unpack catalogue %s: %w", v.ID, err)
	}
	return nil
}

// files verifies the archive against the ID and returns its files, keyed by path relative to the version's directory.
func (v Version) files() (map[string][]byte, error) {
	zr, err := gzip.NewReader(bytes.NewReader(v.Archive))
	if err != nil {
		return nil, err
	}
	tarball, err := io.ReadAll(io.LimitReader(zr, maxArchive+1))
	if err != nil {
		return nil, err
	}
	if len(tarball) > maxArchive || versionIDOf(tarball) != v.ID {
		return nil, fmt.Errorf("the archive does not match version %s", v.ID)
	}
	files := map[string][]byte{}
	tr := tar.NewReader(bytes.NewReader(tarball))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		ours := strings.HasPrefix(h.Name, serversDir) || strings.HasPrefix(h.Name, skillsDir)
		if h.Typeflag != tar.TypeReg || !fs.ValidPath(h.Name) || !ours {
			return nil, fmt.Errorf("unexpected file %q in the archive", printableName(h.Name))
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			return nil, err
		}
	}
}

// writeTree writes files to dir/<id>, atomically.
func writeTree(dir, id string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return createDir(dir, id, func(tmp string) error { return writeFiles(tmp, files) })
}

// createDir creates dir/<name> atomically, with the content that fill writes to a temporary directory. Every user can
// read it.
func createDir(dir, name string, fill func(tmp string) error) error {
	tmp, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // after the rename there is nothing to remove
	if err := errors.Join(fill(tmp), makeReadable(tmp)); err != nil {
		return err
	}
	target := filepath.Join(dir, name)
	err = os.Rename(tmp, target)
	if _, statErr := os.Stat(target); err != nil && statErr == nil {
		return nil // another process created it first, with the same content
	}
	return err
}

// makeReadable makes directories and files readable for every user, such as those of programs, despite the umask.
func makeReadable(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return root.Chmod(name, 0o755)
		case e.Type().IsRegular():
			return root.Chmod(name, 0o644)
		}
		return nil // a symbolic link of a tenant's version
	})
}

func writeFiles(dir string, files map[string][]byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	created := map[string]bool{}
	for name, data := range files {
		if parent := path.Dir(name); !created[parent] {
			if err := root.MkdirAll(parent, 0o755); err != nil {
				return err
			}
			created[parent] = true
		}
		if err := root.WriteFile(name, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
