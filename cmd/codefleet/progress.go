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
	p.erase()
}

// erase is clear, for callers that hold p.mu.
func (p *progress) erase() {
	if p.visible {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.visible = false
	}
}

// above returns a writer to w that removes the progress line before each write. Each write must consist of whole lines.
// Several goroutines may write.
func (p *progress) above(w io.Writer) io.Writer { return &lineWriter{p, w} }

type lineWriter struct {
	line *progress
	w    io.Writer
}

func (l *lineWriter) Write(data []byte) (int, error) {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	l.line.erase()
	return l.w.Write(data)
}

// transfer returns a function that shows how many bytes of a transfer are done, whenever the percentage changes.
func (p *progress) transfer(name string) func(done, total int64) {
	last := int64(-1)
	return func(done, total int64) {
		percent := 100 * done / max(total, 1)
		if percent == last {
			return
		}
		last = percent
		p.show(fmt.Sprintf("%s: %s of %s (%d %%)", name, bytesText(done), bytesText(total), percent))
	}
}

// counter is a writer that counts the bytes written to it and reports the count.
type counter struct {
	done, total int64
	report      func(done, total int64)
}

func (c *counter) Write(b []byte) (int, error) {
	c.done += int64(len(b))
	c.report(c.done, c.total)
	return len(b), nil
}

// bytesText formats a number of bytes with an SI unit.
func bytesText(n int64) string {
	const step = 1000
	const tooLarge = step - 0.05 // from here on, %.1f prints 1000.0
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/step, 0
	units := []string{"kB", "MB", "GB", "TB"}
	for ; size >= tooLarge && unit < len(units)-1; unit++ {
		size /= step
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}

// during shows text as the progress line while fn runs.
func during[T any](a *app, text string, fn func() (T, error)) (T, error) {
	line := a.progress()
	line.show(text)
	defer line.clear()
	return fn()
}
