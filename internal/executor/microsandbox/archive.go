package microsandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// loadDir loads a directory into msb as an image of one layer. (msb can also use a directory directly, but then
// all boxes share it, writable.) The image's name is a hash of the names, modes, sizes and times of its files.
func (d *Driver) loadDir(ctx context.Context, dir string) (ref string, err error) {
	sum, size := sha256.New(), int64(0)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s\x00%d\x00%d\x00%d\x00", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			size += info.Size()
		}
		if size>>20 > d.opts.MaxImageMB {
			return d.tooLarge(dir, size>>20)
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return "", fmt.Errorf("read image %s: %w", dir, err)
	}
	ref = localName(hex.EncodeToString(sum.Sum(nil)))
	if has, err := d.hasImage(ctx, ref); has || err != nil {
		return ref, err
	}
	temp, err := os.MkdirTemp(d.home, "image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	archive := filepath.Join(temp, "image.tar")
	if err := packImage(dir, temp, archive); err != nil {
		return "", imageError(executor.ReasonImageBroken, "pack image %s: %w", dir, err)
	}
	return ref, d.load(ctx, ref, archive)
}

// packImage writes a directory as an archive in Docker's format: a layer, its configuration and a manifest.
func packImage(dir, temp, archive string) (err error) {
	layer, err := os.Create(filepath.Join(temp, "layer.tar"))
	if err != nil {
		return err
	}
	defer layer.Close()
	sum := sha256.New()
	w := tar.NewWriter(io.MultiWriter(layer, sum))
	if err := errors.Join(hostdir.Tar(w, dir, func(*tar.Header) {}), w.Close()); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": struct{}{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum.Sum(nil))}},
	})
	if err != nil {
		return err
	}
	list, err := json.Marshal([]map[string]any{{"Config": "config.json", "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	outer := tar.NewWriter(out)
	for _, part := range []struct {
		name string
		data io.Reader
		size int64
	}{
		{"manifest.json", bytes.NewReader(list), int64(len(list))},
		{"config.json", bytes.NewReader(config), int64(len(config))},
		{"layer.tar", io.NewSectionReader(layer, 0, size), size},
	} {
		if err := outer.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: part.size}); err != nil {
			return err
		}
		if _, err := io.Copy(outer, part.data); err != nil {
			return err
		}
	}
	return outer.Close()
}
