package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Approvals holds, by tool id, the definition that somebody has accepted.
type Approvals map[string]Approval

// Approval is one acceptance. It keeps the whole definition, to show what changed since.
type Approval struct {
	Hash       string     `json:"hash"`
	By         string     `json:"by"`
	At         time.Time  `json:"at"`
	Definition Definition `json:"definition"`
}

// State says how a definition's hash stands to what was accepted.
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

// Approve accepts a definition as the tool's.
func (a Approvals) Approve(server string, d Definition, by string, at time.Time) {
	a[server+"/"+d.Name] = Approval{Hash: d.Hash(), By: by, At: at.UTC().Truncate(time.Second), Definition: d}
}

// Difference shows what changed between the accepted definition and d, a line a change, hidden
// characters spelled out; nil when nothing did.
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

// LoadApprovals reads the approvals of a servers directory; none when there is no file.
func LoadApprovals(dir string) (Approvals, error) {
	data, err := os.ReadFile(filepath.Join(dir, ApprovalsFile))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read approvals: %w", err)
	}
	return parseApprovals(data)
}

// Save writes the approvals of a servers directory, whole or not at all.
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

// WriteFile replaces a file in one step, so that no reader sees half of it.
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
