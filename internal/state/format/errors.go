package format

import (
	"errors"

	"github.com/codefleet/codefleet/internal/objects"
)

// Errors that callers branch on, in addition to those of package objects.
var (
	ErrKey   = errors.New("missing encryption key") // an object's key is not in the keyring
	ErrQuota = errors.New("workspace quota exceeded")
)

// IsDamage reports whether err means that an object is missing or corrupt.
func IsDamage(err error) bool {
	return errors.Is(err, objects.ErrCorrupt) || errors.Is(err, objects.ErrNotFound)
}
