//go:build !linux

package main

import "context"

// clientOnly is the detail of checks that concern only workers.
const clientOnly = "not checked: workers run only on Linux; this system can only be a client"

func (p *hostCheck) userNamespaces(context.Context) checkResult {
	return checkResult{"user namespaces", warning, clientOnly, ""}
}

func (p *hostCheck) cgroups(context.Context) checkResult {
	return checkResult{"cgroups", warning, clientOnly, ""}
}

func (p *hostCheck) disk(context.Context) checkResult {
	return checkResult{"disk", warning, clientOnly, ""}
}

func (p *hostCheck) openFiles(context.Context) checkResult {
	return checkResult{"open files", warning, clientOnly, ""}
}

func (p *hostCheck) clock(context.Context) checkResult {
	return checkResult{"clock", warning, clientOnly, ""}
}
