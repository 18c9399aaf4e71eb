//go:build !linux

package microsandbox

// killMachine has nothing to kill where no machine can be.
func (d *Driver) killMachine(string) {}
