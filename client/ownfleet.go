package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	fleetStart = time.Minute      // time limit for a fleet to become ready
	fleetStop  = 35 * time.Second // time limit for a fleet to finish its tasks and stop
	maxReady   = 1 << 20          // size limit, in bytes, of the JSON that a fleet prints when it is ready
)

// ownFleet is a fleet that an agent has started, in a child process. If this process ends without closing the agent,
// the fleet also ends, because its standard input closes.
type ownFleet struct {
	dir   string
	cmd   *exec.Cmd
	stdin io.Closer
	log   logEnd
}

// logEnd keeps the last maxLog bytes that are written to it, and at times up to twice as many.
type logEnd struct{ text []byte }

const maxLog = 64 << 10

func (l *logEnd) Write(p []byte) (int, error) {
	if l.text = append(l.text, p...); len(l.text) > 2*maxLog {
		l.text = append([]byte(nil), l.text[len(l.text)-maxLog:]...)
	}
	return len(p), nil
}

// startFleet runs `codefleet up` with settings, in a new data directory, and returns how to connect to it.
func startFleet(ctx context.Context, settings map[string]string) (_ *ownFleet, o Options, err error) {
	binary, err := fleetBinary()
	if err != nil {
		return nil, o, err
	}
	f := &ownFleet{}
	if f.dir, err = os.MkdirTemp("", "codefleet-"); err != nil { // a short path, because of the sockets in it
		return nil, o, fmt.Errorf("start a fleet: %w", err)
	}
	defer func() {
		if err != nil {
			err = f.startError(errors.Join(err, f.close()))
		}
	}()
	const address = "127.0.0.1:0"
	//nolint:noctx // close ends it
	f.cmd = exec.Command(binary, "up", "-o", "json", "--attached", "--data", f.dir, "--http", address,
		"--nats", address, "--s3", address)
	f.cmd.Env = append(os.Environ(), settingVariables(settings)...) //nolint:forbidigo // the fleet inherits it
	f.cmd.Stderr = &f.log
	if f.stdin, err = f.cmd.StdinPipe(); err != nil {
		return nil, o, err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, o, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, o, err
	}
	kill := func() { _ = f.cmd.Process.Kill() } // fails if it has exited
	defer time.AfterFunc(fleetStart, kill).Stop()
	defer context.AfterFunc(ctx, kill)()
	var ready json.RawMessage // printed once the fleet is ready
	if err := json.NewDecoder(io.LimitReader(out, maxReady)).Decode(&ready); err != nil {
		return nil, o, cmp.Or(ctx.Err(), errors.New("the fleet ended before it was ready"))
	}
	o, err = ReadFleetFile(filepath.Join(f.dir, "fleet.json"))
	return f, o, err
}

// fleetBinary returns the path of the binary codefleet: CODEFLEET_BIN, or the one on PATH.
func fleetBinary() (string, error) {
	//nolint:forbidigo // the environment names the binary, as it names the fleet
	path, err := exec.LookPath(cmp.Or(os.Getenv("CODEFLEET_BIN"), "codefleet"))
	if err != nil {
		return "", fmt.Errorf("AgentOptions.Settings need the binary codefleet, which starts a fleet with them: %w; "+
			"put it on PATH, or set CODEFLEET_BIN", err)
	}
	return path, nil
}

// settingVariables returns the environment variables for settings. They take precedence over config.yaml and .env.
func settingVariables(settings map[string]string) []string {
	var list []string
	for key, value := range settings {
		list = append(list, "CODEFLEET_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))+"="+value)
	}
	slices.Sort(list)
	return list
}

// startError returns the error with which the fleet ended: the message of the last error in its log that is JSON, or
// else err and the last line of the log.
func (f *ownFleet) startError(err error) error {
	lines := strings.Split(strings.TrimSpace(string(f.log.text)), "\n")
	for _, line := range slices.Backward(lines) {
		var reason struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal([]byte(line), &reason) == nil && reason.Error.Message != "" {
			return fmt.Errorf("start a fleet with these settings: %s", reason.Error.Message)
		}
	}
	return fmt.Errorf("start a fleet with these settings: %w: %s", err, lines[len(lines)-1])
}

// close stops the fleet, which first finishes its tasks, and removes its data. It kills the fleet after fleetStop.
func (f *ownFleet) close() error {
	if f.cmd != nil && f.cmd.Process != nil {
		_ = f.stdin.Close() // asks the fleet to stop; it may have exited
		defer time.AfterFunc(fleetStop, func() { _ = f.cmd.Process.Kill() }).Stop()
		_ = f.cmd.Wait() // after Kill, or after a failed start, the exit code says nothing new
	}
	return os.RemoveAll(f.dir)
}
