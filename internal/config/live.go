package config

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Programs change the live folder, and so a directory of this host. Nothing in it may be what the fleet reads or runs.

// liveFolder refuses a live folder in a directory of the fleet, and one in which a command of this host runs. What else
// the fleet has in the live folder is not synchronised, see PrivateInLiveFolder.
func (k *checker) liveFolder() {
	c, key := k.c, "execution.workspace_dir"
	if c.Execution.WorkspaceDir == "" {
		return
	}
	folder := realPath(c.Execution.WorkspaceDir)
	if info, err := os.Stat(folder); err == nil && !info.IsDir() {
		k.bad(key, "%s is not a directory", c.Execution.WorkspaceDir)
	}
	for _, s := range c.directories() {
		if s.path != "" && contains(realPath(s.path), folder) {
			k.bad(key, "%s is in %s (%s), where programs could change files of the fleet: use another directory",
				c.Execution.WorkspaceDir, s.path, s.key)
		}
	}
	if dir := programDir(); dir != "" && realPath(dir) == folder {
		k.bad(key, "this program is in it: use another directory")
	}
	for _, s := range c.MCPServers {
		if s.Command == "" || s.Enabled != nil && !*s.Enabled {
			continue
		}
		if cwd := cmp.Or(s.Cwd, "."); contains(folder, realPath(cwd)) {
			k.bad(key, "the MCP server %s runs in it, so programs could change what it runs on this host: "+
				"set its cwd to another directory", s.Name)
		} else if file := s.programIn(folder); file != "" {
			k.bad(key, "%s of the MCP server %s is in it, so programs could change what it runs on this host: "+
				"move it to another directory", file, s.Name)
		}
	}
}

// directory is a directory of the fleet, and the setting that names it.
type directory struct{ key, path string }

func (c *Config) directories() []directory {
	return []directory{
		{"data", c.Data},
		{"execution.servers_dir", c.Execution.ServersDir},
		{"execution.skills_dir", c.Execution.SkillsDir},
	}
}

// programDir returns the directory of this program and of those that it starts, such as runsc, or an empty string.
func programDir() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(path)
}

// programIn returns the word of the server's command line that names a program in a directory, or an empty string.
func (s *MCPServer) programIn(dir string) string {
	for i, word := range append([]string{s.Command}, s.Args...) {
		path := word
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.Cwd, path)
		}
		info, err := os.Stat(path)
		isProgram := err == nil && info.Mode().IsRegular() &&
			(info.Mode()&0o111 != 0 || slices.Contains(scripts, strings.ToLower(filepath.Ext(path))))
		if i == 0 && !strings.Contains(word, "/") { // found on PATH
			continue
		}
		if isProgram && contains(dir, realPath(path)) {
			return word
		}
	}
	return ""
}

// scripts are the extensions of programs that an interpreter runs.
var scripts = []string{".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".rb", ".pl", ".php", ".jar", ".lua"}

// PrivateInLiveFolder returns the paths in the live folder that the fleet itself uses, relative to it: the data
// directory, the directories of tools and skills, the configuration, the files that settings name, and the fleet's own
// programs. They need not exist: a program must not make them either.
func (c *Config) PrivateInLiveFolder() []string {
	folder := realPath(c.Execution.WorkspaceDir)
	var out []string
	add := func(path string) {
		link := filepath.Join(realPath(filepath.Dir(path)), filepath.Base(path)) // a program must not replace it either
		for _, p := range []string{realPath(path), link} {
			if p != folder && contains(folder, p) {
				out = append(out, strings.TrimPrefix(p, strings.TrimSuffix(folder, "/")+"/"))
			}
		}
	}
	e := c.Execution
	names := []string{
		"config.yaml", ".env", c.source.File, c.source.DotEnv, c.Logging.File,
		c.HTTP.TLSCert, c.HTTP.TLSKey, c.NATS.Creds, c.NATS.TLSCA, c.NATS.TLSCert, c.NATS.TLSKey,
		e.Runsc, e.Msb, e.Rootfs, e.SandboxImage, e.Requirements, programDir(),
	}
	for _, d := range c.directories() {
		names = append(names, d.path)
	}
	for _, pool := range c.Pools {
		names = append(names, pool.Image, pool.Requirements)
	}
	names = slices.AppendSeq(names, maps.Keys(c.files)) // the configuration, and files with secrets
	for _, name := range names {
		if name != "" {
			add(name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// contains reports whether path is dir or is in it. Both are as realPath returns them.
func contains(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// realPath returns a path as absolute, without symbolic links in the part that exists.
func realPath(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	rest := ""
	for {
		if found, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Join(found, rest)
		}
		parent := filepath.Dir(path)
		if parent == path {
			return filepath.Join(path, rest)
		}
		rest, path = filepath.Join(filepath.Base(path), rest), parent
	}
}
