package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/config"
)

// standardModules are modules of Python's library that take as long to import as a large package. With their imports,
// they are about 300 modules.
var standardModules = []string{
	"asyncio", "concurrent.futures", "csv", "ctypes", "dataclasses", "decimal", "difflib", "email.mime.multipart",
	"fractions", "ftplib", "gzip",
	"html.parser", "http.client", "http.cookiejar", "http.server", "imaplib", "importlib.metadata", "inspect",
	"logging.config", "lzma", "mailbox",
	"multiprocessing.pool", "optparse", "pdb", "pickle", "pickletools", "platform", "plistlib", "pydoc", "sqlite3",
	"ssl", "statistics", "tarfile",
	"tempfile", "unittest.mock", "urllib.request", "uuid", "wsgiref.simple_server", "xml.dom.minidom",
	"xml.etree.ElementTree", "xml.sax",
	"xmlrpc.client", "xmlrpc.server", "zipapp", "zoneinfo",
}

// usage contains programs that use a large package. Other modules are only imported.
var usage = map[string]string{"pandas": "print(int(pandas.DataFrame({'x': [6, 7]}).x.prod()))"}

// importsPool returns a task pool whose boxes preload modules: the first one in the settings, or else one that it adds
// to them.
func importsPool(c *config.Config) (name string, modules []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		if p := c.Pools[name]; len(p.Preload) > 0 && name != config.DefaultPool {
			return name, p.Preload
		}
	}
	one := 1
	c.Pools = maps.Clone(c.Pools)
	if c.Pools == nil {
		c.Pools = map[string]config.Pool{}
	}
	c.Pools["imports"] = config.Pool{Preload: standardModules, Ready: &one}
	return "imports", standardModules
}

// imports measures a task with preloaded modules beside a task that imports nothing, in a fleet with boxes for both.
func (b *run) imports(ctx context.Context) (err error) {
	var pool string
	var modules []string
	c, stop, err := b.StartClient(ctx, func(c *config.Config) { pool, modules = importsPool(c) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	with := bench.Repeated("task with imports", c, client.Task{Code: importProgram(modules), Pool: pool})
	without := bench.Repeated("task with none", c, client.Task{Code: bench.SmallestProgram})
	if err := b.SideBySide(ctx, bench.Spaced(b.N), with, without); err != nil {
		return err
	}
	b.AtMost("N1i", "task with imports ÷ task with none", b.Median(with.Name)/b.Median(without.Name), 1.2, "×")
	b.Note("N1i imports %s; %s", strings.Join(modules, ", "), b.importTime(ctx, modules))
	return nil
}

// importProgram returns a program that imports modules and prints 42. If usage has a program for one of the modules,
// that one computes the 42.
func importProgram(modules []string) string {
	code := "import " + strings.Join(modules, ", ") + "\n"
	for _, m := range modules {
		if use := usage[m]; use != "" {
			return code + use
		}
	}
	return code + bench.SmallestProgram
}

// importTime describes how long the host's Python takes to import the modules, if it has them.
func (b *run) importTime(ctx context.Context, modules []string) string {
	host := bench.Timed("python -c with the imports", func(ctx context.Context) error {
		return exec.CommandContext(ctx, bench.Python(), "-c", "import "+strings.Join(modules, ", ")).Run()
	})
	if err := b.SideBySide(ctx, bench.Plan{Samples: 10, PerTurn: 1}, host); err != nil {
		return "the host's Python cannot import them"
	}
	return fmt.Sprintf("the host's Python takes %.0f ms to start and import them", b.Median(host.Name))
}
