// Command measure prints measures of the code's structure, so that checkouts can be compared:
//
//	go run ./test/measure            the measures of this checkout
//	go run ./test/measure DIR…       one column for each checkout
//	go run ./test/measure -build …   also builds the programs of each checkout, from an empty cache (minutes)
//
// It takes the packages that the shipped programs and the public packages contain from `go list` and parses their
// files. It does not count test files, test-only packages, examples and generated files. Only lines over 120 columns
// are counted in all Go files.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
)

func main() {
	withBuild := flag.Bool("build", false, "also build the programs of each checkout, from an empty cache")
	flag.Parse()
	dirs := flag.Args()
	if len(dirs) == 0 {
		dirs = []string{"."}
	}
	// After a signal, run still removes the files of the build.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, dirs, *withBuild, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

// row is one measure.
type row struct {
	name  string
	value func(*checkout) string
}

func rows() []row {
	list := []row{
		{"code lines of the product", func(c *checkout) string { return strconv.Itoa(c.codeLines()) }},
		{"packages of the product", func(c *checkout) string { return strconv.Itoa(len(c.packages)) }},
		{
			"packages of this module that the assembly imports",
			func(c *checkout) string { return strconv.Itoa(c.fanOut("assembly", "wire")) },
		},
		{"largest options struct, fields", func(c *checkout) string { return c.largestOptions() }},
		{
			"exported methods of state.Store",
			func(c *checkout) string { return strconv.Itoa(c.methods("internal/state", "Store")) },
		},
		{"lines of a function, p50 / p90", func(c *checkout) string { return c.functionLines() }},
		{"Go lines over 120 columns, tests included", func(c *checkout) string { return strconv.Itoa(c.wideLines()) }},
		{"words with several meanings", func(c *checkout) string { return c.ambiguousWords() }},
	}
	for _, pkg := range []string{"jobs", "ingest", "bridge", "state"} {
		list = append(list, row{
			"references upward within internal/" + pkg,
			func(c *checkout) string { return c.upward("internal/" + pkg) },
		})
	}
	return list
}

func run(ctx context.Context, dirs []string, withBuild bool, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "measure\t"+strings.Join(dirs, "\t"))
	var checkouts []*checkout
	for _, dir := range dirs {
		c, err := load(ctx, dir)
		if err != nil {
			return fmt.Errorf("read checkout %s: %w", dir, err)
		}
		checkouts = append(checkouts, c)
	}
	for _, r := range rows() {
		cells := []string{r.name}
		for _, c := range checkouts {
			cells = append(cells, r.value(c))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	if !withBuild {
		return w.Flush()
	}
	lines := slices.Clone(buildRows)
	for _, dir := range dirs {
		fmt.Fprintf(os.Stderr, "building %s from an empty cache\n", dir)
		b, err := build(ctx, dir)
		if err != nil {
			return err
		}
		for i, cell := range b.cells() {
			lines[i] += "\t" + cell
		}
	}
	fmt.Fprintln(w, strings.Join(lines, "\n"))
	return w.Flush()
}

// listProduct lists the packages of this module that the shipped programs and the public packages contain.
func listProduct(ctx context.Context, dir string) ([]listedPackage, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports",
		"./cmd/...", "./client", "./plugin/...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	data, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []listedPackage
	for dec := json.NewDecoder(strings.NewReader(string(data))); ; {
		var l listedPackage
		switch err := dec.Decode(&l); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		}
		if strings.HasPrefix(l.ImportPath, module) {
			list = append(list, l)
		}
	}
}
