package main

import (
	"bytes"
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/text"
)

// screen is an output stream to a terminal. It escapes the characters with which untrusted text, such as a program's
// output, could control the terminal: set its title, write to the clipboard, or hide lines. Files and pipes get the
// unchanged bytes. Like a file, a screen is safe for concurrent use.
type screen struct {
	file *os.File
	mu   sync.Mutex
	cut  []byte // the start of a character whose other bytes have not been written yet
}

// onScreen returns a screen for f if f is a terminal, and f otherwise.
func onScreen(f *os.File) io.Writer {
	if isTerminal(f) {
		return &screen{file: f}
	}
	return f
}

// Fd makes isTerminal report true.
func (s *screen) Fd() uintptr { return s.file.Fd() }

// unscreened returns the terminal behind a screen, for the escape sequences that commands write themselves.
func unscreened(w io.Writer) io.Writer {
	if s, ok := w.(*screen); ok {
		return s.file
	}
	return w
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := append(s.cut, p...)
	end := wholeCharacters(data)
	s.cut = bytes.Clone(data[end:])
	if _, err := io.WriteString(s.file, text.Terminal(string(data[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// wholeCharacters returns the length of data without an incomplete character at its end.
func wholeCharacters(data []byte) int {
	for i := len(data) - 1; i >= max(0, len(data)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(data[i]) {
			if !utf8.FullRune(data[i:]) {
				return i
			}
			break
		}
	}
	return len(data)
}
