//go:build !linux

package microsandbox

// killMachine does nothing: msb runs no machines on this system.
func (d *Driver) killMachine(string) {}
