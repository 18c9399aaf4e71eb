package main

import (
	"fmt"
	"io"
	"sync"
)

// progress is a line on a terminal that shows what a command waits for.
type progress struct {
	w       io.Writer // nil disables the line
	mu      sync.Mutex
	visible bool
}

func (a *app) progress() *progress {
	if a.output == "text" && isTerminal(a.stderr) {
		return &progress{w: unscreened(a.stderr)}
	}
	return &progress{}
}

// show replaces the line.
func (p *progress) show(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w != nil {
		fmt.Fprintf(p.w, "\r\x1b[K%s …", printable(text))
		p.visible = true
	}
}

// clear removes the line. Call it before other output.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.visible {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.visible = false
	}
}

// above returns a writer of whole lines that removes the line from the terminal before each write.
func (p *progress) above(w io.Writer) io.Writer {
	if p.w == nil {
		return w
	}
	return &lineWriter{p, w}
}

type lineWriter struct {
	line *progress
	w    io.Writer
}

func (l *lineWriter) Write(data []byte) (int, error) {
	l.line.clear()
	return l.w.Write(data)
}

// during shows text while fn runs.
func during[T any](a *app, text string, fn func() (T, error)) (T, error) {
	line := a.progress()
	line.show(text)
	defer line.clear()
	return fn()
}
