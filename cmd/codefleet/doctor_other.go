//go:build !linux

package main

import "context"

// clientOnly is the detail of checks that concern only workers.
const clientOnly = "not checked: workers run only on Linux; this system can only be a client"

func (p *hostCheck) userNamespaces(context.Context) finding {
	return finding{"user namespaces", warning, clientOnly, ""}
}

func (p *hostCheck) cgroups(context.Context) finding {
	return finding{"cgroups", warning, clientOnly, ""}
}

func (p *hostCheck) disk(context.Context) finding { return finding{"disk", warning, clientOnly, ""} }

func (p *hostCheck) openFiles(context.Context) finding {
	return finding{"open files", warning, clientOnly, ""}
}

func (p *hostCheck) clock(context.Context) finding {
	return finding{"clock", warning, clientOnly, ""}
}
