package tools

import (
	"bytes"
	"compress/gzip"
	"io"
)

// Resign gives an archive the id of its content, so that a test gets past that check.
func Resign(archive []byte) Version {
	zr, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		panic(err)
	}
	plain, err := io.ReadAll(zr)
	if err != nil {
		panic(err)
	}
	return Version{ID: versionIDOf(plain), Archive: archive}
}

var (
	UnpackOnce = Version.unpackOnce
	FetchTo    = fetchTo
)
