//go:build tools

// Package tools fixes the versions of the programs that codefleet runs but does
// not link. It is a separate module, so that their dependencies do not become
// dependencies of codefleet.
//
// The gVisor engine must be linked statically, because it starts itself again
// inside an empty root file system:
//
//	CGO_ENABLED=0 go build -C tools -trimpath -ldflags='-s -w' -o ../bin/runsc gvisor.dev/gvisor/runsc
package tools

import _ "gvisor.dev/gvisor/runsc"
