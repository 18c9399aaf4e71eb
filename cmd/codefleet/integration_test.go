package main

import (
	"fmt"
	"image/color"
	"image/png"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/codefleet/codefleet/internal/executor/executortest"
)

// TestIntegration runs the scripts that need real MCP servers and a browser driver from npm, Chromium, and pandas and
// matplotlib. CODEFLEET_TEST_NPM names the directory into which internal/tools/toolstest/npm/install.sh has installed
// the packages, CODEFLEET_TEST_SCIENCE that of tools/science.sh, and CODEFLEET_TEST_PYPDF one with Debian's pypdf.
// The scripts have three commands in addition to those of TestScripts:
//
//	expand FILE...     expand environment variables in files
//	killserver NAME    kill -9 the fleet's child processes whose command line contains NAME
//	picture FILE...    print the size and the most frequent colours of PNG files
func TestIntegration(t *testing.T) {
	npm, noSkip := os.Getenv("CODEFLEET_TEST_NPM"), os.Getenv("CODEFLEET_TEST_NO_SKIP") != ""
	science, pypdf := os.Getenv("CODEFLEET_TEST_SCIENCE"), os.Getenv("CODEFLEET_TEST_PYPDF")
	runsc := executortest.FindRunsc(t)
	switch {
	case (npm == "" || science == "" || pypdf == "") && noSkip:
		t.Fatal("CODEFLEET_TEST_NPM, _SCIENCE or _PYPDF is not set: run make test-integration")
	case runsc == "" && noSkip:
		t.Fatal("runsc is not installed: run make bin/runsc")
	case npm == "" || science == "" || pypdf == "" || runsc == "":
		t.Skip("the npm servers, the Debian packages or runsc are missing: run make test-integration")
	}
	p := scripts(t, runsc)
	p.Dir = "testdata/integration"
	setup := p.Setup
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("NPM", npm)
		e.Setenv("SCIENCE", science)
		e.Setenv("PYPDF", pypdf)
		e.Setenv("SCREENSHOTS", os.Getenv("CODEFLEET_SCREENSHOTS"))
		e.Setenv("NODE", filepath.Join(npm, "node_modules/.bin/node"))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		e.Setenv("PORT", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)) //nolint:forcetypeassert // of a TCP listener
		if err := l.Close(); err != nil {
			return err
		}
		return setup(e)
	}
	p.Cmds["expand"], p.Cmds["killserver"], p.Cmds["picture"] = expand, killServer, describePictures
	testscript.Run(t, p)
}

func expand(ts *testscript.TestScript, _ bool, files []string) {
	for _, name := range files {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

func killServer(ts *testscript.TestScript, _ bool, args []string) {
	f, ok := ts.Value(fleetKey{}).(*fleet)
	if !ok || f.cmd == nil {
		ts.Fatalf("no fleet is running")
	}
	killed := 0
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(f.cmd.Process.Pid), "-f", args[0]).Output()
	ts.Check(err)
	for line := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(line)
		ts.Check(err)
		ts.Check(syscall.Kill(pid, syscall.SIGKILL))
		killed++
	}
	if killed == 0 {
		ts.Fatalf("the fleet has no child process %s", args[0])
	}
}

func describePictures(ts *testscript.TestScript, _ bool, files []string) {
	names := map[color.Color]string{
		color.NRGBA{255, 0, 0, 255}: "red", color.NRGBA{0, 128, 0, 255}: "green",
		color.NRGBA{0, 0, 255, 255}: "blue", color.NRGBA{255, 255, 255, 255}: "white",
	}
	for _, file := range files {
		picture, err := png.Decode(strings.NewReader(ts.ReadFile(file)))
		ts.Check(err)
		size, pixels := picture.Bounds(), map[string]int{}
		for y := range size.Dy() {
			for x := range size.Dx() {
				pixels[names[color.NRGBAModel.Convert(picture.At(x, y))]]++
			}
		}
		var frequent []string
		for name, n := range pixels {
			if name != "" && n > size.Dx()*size.Dy()/20 {
				frequent = append(frequent, name)
			}
		}
		slices.Sort(frequent)
		fmt.Fprintf(ts.Stdout(), "%s: %dx%d, %s\n", file, size.Dx(), size.Dy(), strings.Join(frequent, ", "))
	}
}
