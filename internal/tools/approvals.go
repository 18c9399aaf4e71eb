package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/codefleet/codefleet/internal/limited"
)

// Approvals holds the approved definitions, keyed by tool ID.
type Approvals map[string]Approval

// Approval is an operator's approval of a definition. It keeps the whole definition, so that Difference
// can show what has changed since then.
type Approval struct {
	Hash       string     `json:"hash"`
	By         string     `json:"by"`
	At         time.Time  `json:"at"`
	Definition Definition `json:"definition"`
}

// State returns Approved if the definition with this hash is the approved one of the tool, Changed if another one is,
// and Pending if none is.
func (a Approvals) State(id, hash string) State {
	approved, ok := a[id]
	switch {
	case !ok:
		return Pending
	case approved.Hash == hash:
		return Approved
	}
	return Changed
}

// Approve records the definition as the approved one of its tool.
func (a Approvals) Approve(server string, d Definition, by string, at time.Time) {
	a[server+"/"+d.Name] = Approval{Hash: d.Hash(), By: by, At: at.UTC().Truncate(time.Second), Definition: d}
}

// Difference lists the changes from the approved definition to d, one per line, with hidden characters
// spelled out.
func (a Approvals) Difference(server string, d Definition) []string {
	approved, ok := a[server+"/"+d.Name]
	if !ok {
		return []string{"new tool"}
	}
	return difference(approved.Definition, d)
}

func parseApprovals(data []byte) (Approvals, error) {
	a := Approvals{}
	if len(data) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("%s: %w", ApprovalsFile, err)
	}
	if a == nil { // the file contains null
		a = Approvals{}
	}
	return a, nil
}

// LoadApprovals reads the approvals of a servers directory. If the file is missing, nothing is approved.
func LoadApprovals(dir string) (Approvals, error) {
	data, err := limited.ReadFile(filepath.Join(dir, ApprovalsFile), maxDefinitions)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read approvals: %w", err)
	}
	return parseApprovals(data)
}

// Save writes the approvals to a servers directory, atomically.
func (a Approvals) Save(dir string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(a); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, ApprovalsFile), b.Bytes())
}

// WriteFile replaces a file atomically.
func WriteFile(name string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}
