package hostdir

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FindImage returns what the name of an image means on this host: a file or a directory, or a reference to an image in
// a registry. If no such file can be reached, only a name that looks like a path is an error.
func FindImage(name string) (info fs.FileInfo, isReference bool, err error) {
	info, err = os.Stat(name)
	if err != nil && !isImagePath(name) {
		return nil, true, nil
	}
	return info, false, err
}

// ImageName returns the name of an image for users, without the directory of a file on this host.
func ImageName(name string) string {
	if isImagePath(name) {
		return filepath.Base(name)
	}
	return name
}

func isImagePath(name string) bool {
	return strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".tar")
}
