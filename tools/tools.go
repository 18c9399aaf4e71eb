//go:build tools

// Package tools pins the binaries that codefleet runs but does not link. It is
// a module of its own, so that their dependencies never reach ours.
//
// The sandbox engine is built static, which it needs in order to start itself
// again inside an empty root:
//
//	CGO_ENABLED=0 go build -C tools -trimpath -ldflags='-s -w' -o ../bin/runsc gvisor.dev/gvisor/runsc
package tools

import _ "gvisor.dev/gvisor/runsc"
