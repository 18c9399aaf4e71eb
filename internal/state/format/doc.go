// Package format defines how workspaces are stored: the bytes of HEADs, manifests, packs and pins, their keys in the
// object store, and their encryption. No other package depends on these bytes, so a change of the format is a change
// here.
//
//	<tenant>/p/<hh>/<sha256>                pack: blobs and their index ([AppendIndex])
//	<tenant>/w/<ws>/m/<generation>-<id>     manifest of one commit ([Manifest])
//	<tenant>/w/<ws>/HEAD                    reference to the newest manifest ([Head])
//	<tenant>/w/<ws>/pins/HEAD               versions that outlive retention ([Pins])
//	<tenant>/w/<ws>/k/<generation>-<until>  version that is retained until a time ([Retained])
//	<tenant>/floor/HEAD                     last generation of purged workspaces ([Floor])
//	<tenant>/gc/<time>-<id>                 objects that a run of garbage collection has marked ([Marks])
//
// Everything but HEAD, pins and floor is immutable. Decoded data may be hostile: it is validated, and its sizes and
// paths are never trusted. The package does no I/O. The tests in bytes_test.go fix every byte that it writes.
package format
