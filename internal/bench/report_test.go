package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		samples []float64
		p, want float64
	}{
		{nil, 0.5, 0},
		{[]float64{7}, 0.5, 7},
		{[]float64{7}, 0.99, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 3, 2, 1}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
	} {
		if got := Quantile(c.samples, c.p); got != c.want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", c.samples, c.p, got, c.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("Quantile has sorted its argument, want it unchanged")
	}
}

func TestMean(t *testing.T) {
	if got := mean([]float64{1, 2, 6}); got != 3 {
		t.Errorf("mean = %v, want 3", got)
	}
	if got := mean(nil); got != 0 {
		t.Errorf("mean of no samples = %v, want 0", got)
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		q    Quantiles
		top  float64
		want string
	}{
		{Quantiles{P50: 5, P99: 10}, 10, strings.Repeat("█", 20) + strings.Repeat("·", 20)},
		{Quantiles{P50: 1, P99: 1}, 10, "████"},
		{Quantiles{}, 10, ""},
		{Quantiles{}, 0, ""},
	} {
		if got := bar(c.q, c.top); got != c.want {
			t.Errorf("bar(%+v, %v) = %q, want %q", c.q, c.top, got, c.want)
		}
	}
}

func TestTargets(t *testing.T) {
	r := newReport("x", "")
	r.AtMost("low", "", 0.8, 0.8, "×")
	r.AtMost("high", "", 0.81, 0.8, "×")
	r.AtLeast("enough", "", 80, 80)
	r.AtLeast("little", "", 79.9, 80)
	for id, met := range map[string]bool{"low": true, "high": false, "enough": true, "little": false} {
		if r.Numbers[id].Met != met {
			t.Errorf("%s: met %v, want %v", id, r.Numbers[id].Met, met)
		}
	}
}

func TestText(t *testing.T) {
	r := newReport("warm", "")
	r.Commit, r.Machine = "c0ffee", Machine{Cores: 2, MemoryMB: 4096, Kernel: "6.1", HugePages: "never"}
	r.Add("task", "ms", 10, 20)
	r.Add("yardstick", "ms", 40)
	r.Summarise()
	r.AtMost("N1", "task ÷ yardstick", 0.25, 0.8, "×")
	r.AtMost("N2", "more", 4, 3, "ms")
	r.Note("quiet")
	var out strings.Builder
	if err := r.Text(&out); err != nil {
		t.Fatal(err)
	}
	want := `warm · commit c0ffee · 2 cores, 4096 MB, Linux 6.1, huge pages never

N1  0.25 ×  target 0.8  met      task ÷ yardstick
N2  4 ms    target 3    not met  more

task       p50 10.00  p99 20.00  mean 15.00 ms  n=2  ██████████··········
yardstick  p50 40.00  p99 40.00  mean 40.00 ms  n=1  ████████████████████████████████████████
note: quiet
`
	if got := out.String(); got != want {
		t.Errorf("Text wrote\n%s\nwant\n%s", got, want)
	}
}

func TestKilobytes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "status")
	if err := os.WriteFile(file, []byte("Name:\tx\nVmRSS:\t  2048 kB\nVmRSSx: 1 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"VmRSS": 2048, "Name": 0, "Vm": 0} {
		if got := Kilobytes(file, name); got != want {
			t.Errorf("Kilobytes(%s) = %v, want %v", name, got, want)
		}
	}
	if got := Kilobytes(file+"x", "VmRSS"); got != 0 {
		t.Errorf("Kilobytes of a missing file = %v, want 0", got)
	}
}

func TestProcessTree(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "cat; true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // the child of the shell runs
		t.Fatal(err)
	}
	pids, err := processTree(os.Getpid())
	if err != nil || pids[0] != os.Getpid() || !slices.Contains(pids, cmd.Process.Pid) {
		t.Errorf("processTree of this process: %v, %v; want %d in it", pids, err, cmd.Process.Pid)
	}
	if slices.Contains(pids, os.Getppid()) {
		t.Errorf("processTree of this process: %v, want it without its parent", pids)
	}
	shell := cmd.Process.Pid
	whole, err := treeMemory(shell)
	own := Kilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", shell), "Pss") / 1024
	if err != nil || own <= 0 || whole <= own {
		t.Errorf("the shell uses %v MB, with its child %v MB, %v; want more with its child", own, whole, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}
