package main

import (
	"fmt"
	"io"
	"sync"
)

// progress is a line on a terminal that says what the command waits for; elsewhere it is silent.
type progress struct {
	w  io.Writer // nil: silent
	mu sync.Mutex
	on bool
}

func (a *app) progress() *progress {
	if a.output == "text" && isTerminal(a.stderr) {
		return &progress{w: a.stderr}
	}
	return &progress{}
}

// show replaces the line.
func (p *progress) show(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w != nil {
		fmt.Fprintf(p.w, "\r\x1b[K%s …", what)
		p.on = true
	}
}

// clear removes the line, before anything else is written.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.on = false
	}
}
