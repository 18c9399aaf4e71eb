package format

import (
	"errors"

	"github.com/codefleet/codefleet/internal/objects"
)

// Errors that callers branch on, beside those of package objects.
var (
	ErrKey   = errors.New("no key for it") // an object is encrypted with a key that is not in the keyring
	ErrQuota = errors.New("workspace quota exceeded")
)

// IsDamage reports whether err says that an object is missing or is not what it should be.
func IsDamage(err error) bool {
	return errors.Is(err, objects.ErrCorrupt) || errors.Is(err, objects.ErrNotFound)
}
