// Package format is the stored form of workspaces: the bytes of HEADs, manifests, packs and pins, their keys in the
// object store, and their encryption. Nothing else knows these bytes, so a change of the format is a change here.
//
//	<tenant>/p/<hh>/<sha256>                pack: blobs and their index ([AppendIndex])
//	<tenant>/w/<ws>/m/<generation>-<id>     manifest of one commit ([Manifest])
//	<tenant>/w/<ws>/HEAD                    the newest manifest ([Head])
//	<tenant>/w/<ws>/pins/HEAD               versions that outlive retention ([Pins])
//	<tenant>/w/<ws>/k/<generation>-<until>  a version that is retained until a time ([Retained])
//	<tenant>/floor/HEAD                     the last generation of purged workspaces ([Floor])
//
// Everything but HEAD, pins and floor is immutable. What is decoded may be hostile: it is validated, and never
// trusted for sizes or paths. The package does no I/O; the tests in bytes_test.go pin every byte that it writes.
package format
