//go:build !linux

package main

import "context"

// Sandboxes run on Linux; elsewhere this program is a client.
const clientOnly = "not looked at: workers run on Linux, this program is a client here"

func (p *examination) userNamespaces(context.Context) finding {
	return finding{"user namespaces", warning, clientOnly, ""}
}

func (p *examination) cgroups(context.Context) finding {
	return finding{"cgroups", warning, clientOnly, ""}
}

func (p *examination) disk(context.Context) finding { return finding{"disk", warning, clientOnly, ""} }

func (p *examination) openFiles(context.Context) finding {
	return finding{"open files", warning, clientOnly, ""}
}

func (p *examination) clock(context.Context) finding {
	return finding{"clock", warning, clientOnly, ""}
}
