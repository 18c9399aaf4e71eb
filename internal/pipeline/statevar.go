package pipeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/statedoc"
	"github.com/codefleet/codefleet/schemas"
)

// StateDocuments configures the variable `state` of programs. The zero value disables it. A task may name another
// document, save or not, and disable the variable, but not enable it.
type StateDocuments struct {
	Enabled bool
	File    string // the default state document; default state.json
	Save    bool   // save the keys that a successful program has changed
}

// stateDocument returns the document of the program's variable `state`, or nil if the variable is disabled or the
// program does not use it. The program's process reads a JSON document itself. A YAML document is converted here,
// because not every box has a parser for YAML.
func (p *Pipeline) stateDocument(t task, code string, tree *state.Tree) (*executor.StateDocument, error) {
	s := p.State
	if !s.Enabled || !strings.Contains(code, "state") {
		return nil, nil
	}
	if own := t.job.Task.State; own != nil {
		if own.Enabled != nil {
			s.Enabled = *own.Enabled
		}
		if own.AutoSave != nil {
			s.Save = *own.AutoSave
		}
		s.File = cmp.Or(own.File, s.File)
	}
	s.File = cmp.Or(s.File, "state.json")
	if !s.Enabled {
		return nil, nil
	}
	d := &executor.StateDocument{File: s.File, Save: s.Save}
	if !statedoc.IsYAML(s.File) {
		return d, nil
	}
	content, err := readState(tree, s.File)
	if isHostFault(err) {
		return nil, err
	}
	if err != nil {
		return nil, &schemas.Error{
			Code: errcode.BadState, Message: fmt.Sprintf("%s: %v", s.File, err),
			Hint: "correct or replace the document " + s.File,
		}
	}
	d.Content = content
	return d, nil
}

// isHostFault reports whether a file could not be read because of a fault of the worker's host.
func isHostFault(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO},
		func(e error) bool { return errors.Is(err, e) })
}

// readState returns a YAML document as JSON.
func readState(tree *state.Tree, file string) (json.RawMessage, error) {
	data, err := tree.ReadFile(file, statedoc.MaxSize+1)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return json.RawMessage("{}"), nil
	case isHostFault(err):
		return nil, err
	case err != nil:
		return nil, errors.New("it cannot be read: it is not a regular file")
	case len(data) > statedoc.MaxSize:
		return nil, fmt.Errorf("it is larger than %d bytes", statedoc.MaxSize)
	}
	content, err := statedoc.ToJSON(file, data)
	if err == nil && string(content) == "null" { // an empty file
		content = json.RawMessage("{}")
	}
	return content, err
}

// convertSaved converts the document, which the program's process has saved as JSON, to YAML if that is the document's
// format.
func convertSaved(d *executor.StateDocument, tree *state.Tree) error {
	if d.Content == nil {
		return nil
	}
	data, err := tree.ReadFile(d.File, statedoc.MaxSize+1)
	if err != nil || len(data) > statedoc.MaxSize {
		return nil //nolint:nilerr // a process of the program has replaced the document since it was saved
	}
	if data, err = statedoc.FromJSON(d.File, data); err != nil {
		return nil //nolint:nilerr // the document stays JSON, which is valid YAML
	}
	return tree.WriteFile(d.File, data, 0o644)
}
