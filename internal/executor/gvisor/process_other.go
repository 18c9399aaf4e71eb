//go:build !linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/codefleet/codefleet/internal/executor"
)

var errUnsupported = fmt.Errorf("gvisor runs on Linux: %w", errors.ErrUnsupported)

func launch(*exec.Cmd, group) (*session, error)   { return nil, errUnsupported }
func exitCode(state *os.ProcessState) int         { return state.ExitCode() }
func killAll(context.Context, string) error       { return nil }
func processStats(string) (executor.Stats, error) { return executor.Stats{}, errUnsupported }
func killSandbox(string) error                    { return nil }
func processesOf(string) ([]int, error)           { return nil, nil }
