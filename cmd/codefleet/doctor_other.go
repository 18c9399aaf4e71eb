//go:build !linux

package main

import "context"

// clientOnly is the finding of checks that concern only workers.
const clientOnly = "not checked: workers run only on Linux; this system can only be a client"

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
