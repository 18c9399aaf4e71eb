package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// source is an open image.
type source struct {
	config []byte // the image's configuration, in JSON
	layers []layer
	close  func()
}

// layer is one tar archive of an image, which may be compressed.
type layer struct {
	name   string
	diffID string // digest of the archive, uncompressed
	open   func() (io.ReadCloser, error)
}

const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	dockerFile = "manifest.json"

	maxParts   = 10_000 // files in an archive
	maxIndexes = 4      // nesting depth of indexes
	maxLinks   = 8      // links that lead from one part to another
)

// part is one file of an archive.
type part struct {
	data *io.SectionReader // nil if it is not a regular file
	link string            // if it is a link, the name of the part to which it leads
}

// parts are the files of an archive by name. Old versions of docker save write a layer that an image contains twice as
// a link.
type parts map[string]part

// open returns the contents of a part.
func (p parts) open(name string) (*io.SectionReader, error) {
	found := p[path.Clean(name)]
	for range maxLinks {
		if found.link == "" {
			break
		}
		found = p[found.link]
	}
	if found.data == nil {
		return nil, broken(name, fs.ErrNotExist)
	}
	return io.NewSectionReader(found.data, 0, found.data.Size()), nil
}

// openSmall returns the contents of a part that is small enough to be read into memory.
func (p parts) openSmall(name string) (*io.SectionReader, error) {
	data, err := p.open(name)
	if err == nil {
		err = checkSize(name, data.Size())
	}
	return data, err
}

func isLayout(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, layoutFile))
	return err == nil
}

// openSource opens an image: a directory in OCI's layout, or an archive. It may create directories in temp.
func openSource(ctx context.Context, name string, info fs.FileInfo, temp string, maxMB int64) (source, error) {
	if info.IsDir() {
		return openLayout(name)
	}
	if !info.Mode().IsRegular() {
		return source{}, fmt.Errorf("%w: it is neither a file nor a directory", ErrBroken)
	}
	file, err := os.Open(name)
	if err != nil {
		return source{}, err
	}
	found, err := scan(file)
	if err != nil {
		err = fmt.Errorf("%w: not an image archive, such as skopeo and docker save write: %w", ErrBroken, err)
		return source{}, errors.Join(err, file.Close())
	}
	if _, docker := found[dockerFile]; docker {
		src, err := openDocker(file, found)
		if err != nil {
			return source{}, errors.Join(err, file.Close())
		}
		src.close = func() { _ = file.Close() } // nothing was written to it
		return src, nil
	}
	defer file.Close()
	return openLayoutArchive(ctx, file, temp, maxMB)
}

// scan returns the parts of an archive. If several have the same name, the first one counts, as in package tarball.
func scan(file *os.File) (parts, error) {
	found := parts{}
	r := tar.NewReader(file)
	for n := 0; ; n++ {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if n == maxParts {
			return nil, fmt.Errorf("the archive has more than %d files", maxParts)
		}
		at, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if len(header.Name) > maxName {
			return nil, fmt.Errorf("a name is %d bytes long; the limit is %d", len(header.Name), maxName)
		}
		name := path.Clean(header.Name)
		if _, exists := found[name]; exists {
			continue
		}
		switch header.Typeflag {
		case tar.TypeReg:
			found[name] = part{data: io.NewSectionReader(file, at, header.Size)}
		case tar.TypeLink:
			found[name] = part{link: path.Clean(header.Linkname)}
		case tar.TypeSymlink:
			found[name] = part{link: path.Join(path.Dir(name), header.Linkname)} //nolint:gosec // a key of found
		default:
			found[name] = part{}
		}
	}
}

// openDocker opens an archive that `docker save` has written.
func openDocker(file *os.File, p parts) (source, error) {
	if _, err := p.openSmall(dockerFile); err != nil {
		return source{}, err
	}
	images, err := tarball.LoadManifest(func() (io.ReadCloser, error) {
		_, err := file.Seek(0, io.SeekStart)
		return io.NopCloser(file), err
	})
	if err != nil {
		return source{}, broken(dockerFile, err)
	}
	if len(images) != 1 {
		return source{}, fmt.Errorf("%w: the archive contains %d images; want one", ErrBroken, len(images))
	}
	data, err := p.openSmall(images[0].Config)
	if err != nil {
		return source{}, err
	}
	config, err := io.ReadAll(data)
	if err != nil {
		return source{}, broken(images[0].Config, err)
	}
	layers := make([]layer, len(images[0].Layers))
	for i, name := range images[0].Layers {
		layers[i] = layer{name: name, open: func() (io.ReadCloser, error) {
			data, err := p.open(name)
			return io.NopCloser(data), err
		}}
	}
	return newSource(config, layers)
}

// openLayoutArchive opens an archive in OCI's layout, which it first unpacks into a temporary directory.
func openLayoutArchive(ctx context.Context, file *os.File, temp string, maxMB int64) (source, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return source{}, err
	}
	dir, err := os.MkdirTemp(temp, tempPrefix)
	if err != nil {
		return source{}, err
	}
	remove := func() { _ = hostdir.Remove(dir) } // if this fails, a later Unpack removes it
	var src source
	if err = Untar(ctx, dir, file, maxMB); err != nil {
		err = layerError(ctx, filepath.Base(file.Name()), err)
	} else {
		src, err = openLayout(dir)
	}
	if err != nil {
		remove()
		return source{}, err
	}
	src.close = remove
	return src, nil
}

// openLayout opens the image in a directory in OCI's layout. If the index lists several images, it opens the first one
// for this machine. Package layout opens only blobs that are regular files and not symbolic links, but it reads them
// whole, so their sizes are checked first.
func openLayout(dir string) (source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return source{}, err
	}
	defer root.Close()
	if err := checkPart(root, indexFile); err != nil {
		return source{}, err
	}
	index, err := layout.ImageIndexFromPath(dir)
	for range maxIndexes {
		if err != nil {
			return source{}, broken(indexFile, err)
		}
		m, err := index.IndexManifest()
		if err != nil {
			return source{}, broken(indexFile, err)
		}
		chosen, err := choose(m.Manifests)
		if err != nil {
			return source{}, err
		}
		if err := checkPart(root, blobName(chosen.Digest)); err != nil {
			return source{}, err
		}
		if !chosen.MediaType.IsIndex() {
			return openLayoutImage(root, index, chosen.Digest)
		}
		if index, err = index.ImageIndex(chosen.Digest); err != nil {
			return source{}, broken(blobName(chosen.Digest), err)
		}
	}
	return source{}, fmt.Errorf("%w: its indexes are nested more than %d deep", ErrBroken, maxIndexes)
}

func openLayoutImage(root *os.Root, index v1.ImageIndex, digest v1.Hash) (source, error) {
	image, err := index.Image(digest)
	if err != nil {
		return source{}, broken(blobName(digest), err)
	}
	m, err := image.Manifest()
	if err != nil {
		return source{}, broken(blobName(digest), err)
	}
	if err := checkPart(root, blobName(m.Config.Digest)); err != nil {
		return source{}, err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return source{}, broken(blobName(m.Config.Digest), err)
	}
	blobs, err := image.Layers()
	if err != nil {
		return source{}, broken(blobName(digest), err)
	}
	layers := make([]layer, len(blobs))
	for i, b := range blobs {
		layers[i] = layer{name: blobName(m.Layers[i].Digest), open: b.Compressed}
	}
	return newSource(config, layers)
}

func blobName(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// choose returns the only image in an index, or the first one for this machine.
func choose(list []v1.Descriptor) (v1.Descriptor, error) {
	if len(list) == 1 {
		return list[0], nil
	}
	for _, d := range list {
		if d.Platform != nil && d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH {
			return d, nil
		}
	}
	return v1.Descriptor{}, fmt.Errorf("%w: none of its %d images is for linux/%s", ErrBroken, len(list),
		runtime.GOARCH)
}

// newSource checks the configuration of an image, and sets the digests that its layers must have.
func newSource(config []byte, layers []layer) (source, error) {
	var image v1.ConfigFile
	if err := json.Unmarshal(config, &image); err != nil {
		return source{}, broken("configuration", err)
	}
	if image.Architecture != "" && image.Architecture != runtime.GOARCH {
		return source{}, fmt.Errorf("%w: it is for %s, but this machine is %s", ErrBroken, image.Architecture,
			runtime.GOARCH)
	}
	ids := image.RootFS.DiffIDs
	if len(ids) != len(layers) {
		return source{}, fmt.Errorf("%w: it has %d layers, but %d digests of layers", ErrBroken, len(layers), len(ids))
	}
	if len(layers) == 0 {
		return source{}, fmt.Errorf("%w: it has no layers", ErrBroken)
	}
	for i := range layers {
		layers[i].diffID = ids[i].String()
	}
	return source{config: config, layers: layers, close: func() {}}, nil
}

// checkPart checks that a part of a layout is a regular file in root that is small enough to be read into memory.
func checkPart(root *os.Root, name string) error {
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return broken(name, err)
	}
	return checkSize(name, info.Size())
}

// checkSize checks that a part is small enough to be read into memory.
func checkSize(name string, size int64) error {
	if size > maxText {
		return broken(name, fmt.Errorf("it is %d bytes; the limit is %d", size, maxText))
	}
	return nil
}

// broken returns err with ErrBroken and the name of the part that cannot be read, unless err already has them.
func broken(name string, err error) error {
	if errors.Is(err, ErrBroken) {
		return err
	}
	return fmt.Errorf("%w: %.200s: %w", ErrBroken, name, err)
}
