package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Approvals holds the approved definitions by tool id.
type Approvals map[string]Approval

// Approval keeps the whole definition, so that Difference can show what changed since.
type Approval struct {
	Hash       string     `json:"hash"`
	By         string     `json:"by"`
	At         time.Time  `json:"at"`
	Definition Definition `json:"definition"`
}

// State compares a definition's hash with the approved one.
func (a Approvals) State(id, hash string) State {
	was, ok := a[id]
	switch {
	case !ok:
		return Pending
	case was.Hash == hash:
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
	was, ok := a[server+"/"+d.Name]
	if !ok {
		return []string{"new tool"}
	}
	return difference(was.Definition, d)
}

func parseApprovals(data []byte) (Approvals, error) {
	a := Approvals{}
	if len(data) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("%s: %w", ApprovalsFile, err)
	}
	return a, nil
}

// LoadApprovals reads the approvals of a servers directory. A missing file has no approvals.
func LoadApprovals(dir string) (Approvals, error) {
	data, err := os.ReadFile(filepath.Join(dir, ApprovalsFile))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read approvals: %w", err)
	}
	return parseApprovals(data)
}

// Save writes the approvals of a servers directory atomically.
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
	if chmod := tmp.Chmod(0o644); err == nil {
		err = chmod
	}
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}
