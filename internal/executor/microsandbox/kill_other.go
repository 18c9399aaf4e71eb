//go:build !linux

package microsandbox

// killMachine does nothing: there are no machines on this system.
func (d *Driver) killMachine(string) {}
