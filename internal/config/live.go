package config

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

// CheckLiveFolder checks that the live folder, in which programs write, has nothing that the fleet's processes on this
// host read or run: no path of the settings, of the programs that they start, or of this process may lead into or
// through it. It looks at the file system, where the folder should exist. The error is an *InvalidError.
func (c *Config) CheckLiveFolder() error {
	dir := c.Execution.WorkspaceDir
	if dir == "" {
		return nil
	}
	k := &checker{c: c}
	const key = "execution.workspace_dir"
	switch folder, err := os.Stat(dir); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		k.bad(key, "%v", err)
	case !folder.IsDir():
		k.bad(key, "%s is not a directory", dir)
	default:
		for _, p := range c.ownPaths() {
			if leadsThrough(p.path, folder) {
				k.bad(key, "%s (%s) is in it, so programs could read or change it", p.path, p.what)
			}
		}
	}
	for _, p := range c.directories() {
		if info, err := os.Stat(p.path); err == nil && leadsThrough(dir, info) {
			k.bad(key, "it is in %s (%s), whose files programs could change", p.path, p.what)
		}
	}
	if len(k.problems) > 0 {
		return &InvalidError{Problems: k.problems}
	}
	return nil
}

// ownPath is a path that the fleet reads or runs, and what it is.
type ownPath struct{ what, path string }

// directories returns the directories of the fleet.
func (c *Config) directories() []ownPath {
	return []ownPath{
		{"data", c.Data},
		{"execution.servers_dir", c.Execution.ServersDir},
		{"execution.skills_dir", c.Execution.SkillsDir},
	}
}

// ownPaths returns the paths that the settings name, and those that this process depends on.
func (c *Config) ownPaths() []ownPath {
	e := c.Execution
	paths := append(c.directories(),
		ownPath{"the working directory, whose config.yaml and .env the next start reads", "."},
		ownPath{"logging.file", c.Logging.File}, ownPath{"http.tls_cert", c.HTTP.TLSCert},
		ownPath{"http.tls_key", c.HTTP.TLSKey}, ownPath{"nats.creds", c.NATS.Creds},
		ownPath{"nats.tls_ca", c.NATS.TLSCA}, ownPath{"nats.tls_cert", c.NATS.TLSCert},
		ownPath{"nats.tls_key", c.NATS.TLSKey}, ownPath{"execution.runsc", e.Runsc}, ownPath{"execution.msb", e.Msb},
		ownPath{"execution.rootfs", e.Rootfs}, ownPath{"execution.sandbox_image", e.SandboxImage},
		ownPath{"execution.requirements", e.Requirements},
	)
	for _, name := range c.filesRead {
		paths = append(paths, ownPath{"the configuration, or a file that it names", name})
	}
	for name, pool := range c.Pools {
		paths = append(paths, ownPath{"pools." + name, pool.Image}, ownPath{"pools." + name, pool.Requirements})
	}
	if path, err := os.Executable(); err == nil {
		paths = append(paths, ownPath{"this program, and those that it starts", filepath.Dir(path)})
	}
	for _, dir := range filepath.SplitList(parseEnv(c.source.Env)["PATH"]) {
		paths = append(paths, ownPath{"PATH", dir})
	}
	if home, err := os.UserHomeDir(); err == nil {
		paths = append(paths, ownPath{"the home directory", home})
	}
	for _, s := range c.MCPServers {
		if s.Command != "" && (s.Enabled == nil || *s.Enabled) {
			paths = append(paths, s.paths()...)
		}
	}
	return slices.DeleteFunc(paths, func(p ownPath) bool { return p.path == "" })
}

// paths returns what in the settings of a server may be a path: an interpreter runs what its arguments and environment
// name, in many ways.
func (s *MCPServer) paths() []ownPath {
	what := "the MCP server " + s.Name
	cwd := cmp.Or(s.Cwd, ".")
	paths := []ownPath{{what + ": cwd", cwd}}
	add := func(word string) {
		if word != "" && !strings.Contains(word, "://") {
			if !filepath.IsAbs(word) {
				word = cwd + "/" + word // not cleaned: .. goes up from where a link leads
			}
			paths = append(paths, ownPath{what, word})
		}
	}
	if strings.Contains(s.Command, "/") {
		add(s.Command)
	} else if found, err := exec.LookPath(s.Command); err == nil {
		add(found)
	}
	words := slices.Clone(s.Args)
	for _, v := range s.Env {
		words = append(words, string(v))
	}
	for _, word := range words {
		add(word)
		_, value, _ := strings.Cut(word, "=")
		add(value)
		for _, part := range filepath.SplitList(word) {
			add(part)
		}
		for part := range strings.FieldsSeq(word) { // of sh -c
			add(strings.Trim(part, `"';`))
		}
	}
	if u, err := user.Lookup(s.User); err == nil {
		paths = append(paths, ownPath{what + ": home directory", u.HomeDir})
	}
	return paths
}

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

// leadsThrough reports whether a path, as far as it exists, is a directory, is in it, or passes through it by way of
// symbolic links: who can write in the directory can change where the path leads.
func leadsThrough(path string, dir os.FileInfo) bool {
	wd, err := os.Getwd()
	if err != nil {
		return true // unknown
	}
	if !filepath.IsAbs(path) {
		path = wd + "/" + path
	}
	at, rest, links := "/", strings.Split(path, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil || links > maxLinks {
			return false
		}
		if info.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(next)
			if err != nil {
				return true
			}
			if links++; filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
			continue
		}
		if os.SameFile(info, dir) {
			return true
		}
		at = next
	}
	return false
}
