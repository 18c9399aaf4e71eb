package statetest

import "math/rand/v2"

// Random returns n bytes that do not compress, the same for the same seed.
func Random(seed byte, n int) string {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // never fails
	return string(data)
}
