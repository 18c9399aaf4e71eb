//go:build !linux

package main

import "context"

// Sandboxes run on Linux; elsewhere this program is a client.
const clientOnly = "not looked at: workers run on Linux, this program is a client here"

func (p *patient) userNamespaces(context.Context) finding {
	return finding{"user namespaces", warning, clientOnly, ""}
}

func (p *patient) cgroups(context.Context) finding {
	return finding{"cgroups", warning, clientOnly, ""}
}
func (p *patient) disk(context.Context) finding { return finding{"disk", warning, clientOnly, ""} }
func (p *patient) openFiles(context.Context) finding {
	return finding{"open files", warning, clientOnly, ""}
}

func (p *patient) clock(context.Context) finding { return finding{"clock", warning, clientOnly, ""} }
