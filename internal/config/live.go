package config

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// CheckLiveFolder checks that the live folder, in which programs write, has nothing that the fleet's processes on this
// host read or run: no path of the settings, of the programs that they start, or of this process may lead into or
// through it. It looks at the file system, where the folder should exist. The error is an *InvalidError.
func (c *Config) CheckLiveFolder() error {
	dir := c.LiveFolder()
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
	case isRoot(folder):
		k.bad(key, "it is the root of the file system, which has all that the fleet reads and runs")
	default:
		for _, p := range c.ownPaths() {
			switch {
			case !leadsThrough(p.path, folder):
			case p.hidden:
				k.bad(key, "%s leads into it, so programs could change what runs on this host", p.what)
			default:
				k.bad(key, "%s (%s) is in it, so programs could read or change it", p.path, p.what)
			}
		}
	}
	for _, p := range c.directories() {
		if info, err := os.Stat(p.path); err == nil && leadsThrough(dir, info) {
			k.bad(key, "it is in %s (%s), whose files programs could change", p.path, p.what)
		}
	}
	slices.SortFunc(k.problems, func(a, b Problem) int { return strings.Compare(a.Message, b.Message) })
	if problems := slices.Compact(k.problems); len(problems) > 0 {
		return &InvalidError{Problems: problems}
	}
	return nil
}

// LiveFolder returns the absolute path of the live folder, or an empty string. It resolves .. as the kernel does.
func (c *Config) LiveFolder() string {
	dir := c.Execution.WorkspaceDir
	if dir == "" {
		return ""
	}
	if slices.Contains(strings.Split(dir, "/"), "..") {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			dir = resolved
		}
	}
	if full, err := filepath.Abs(dir); err == nil {
		return full
	}
	return dir
}

// ownPath is a path that the fleet reads or runs, and what it is.
type ownPath struct {
	what, path string
	hidden     bool // path is not shown: it may be a secret
}

// directories returns the directories of the fleet, and of the file systems of boxes.
func (c *Config) directories() []ownPath {
	e := c.Execution
	out := []ownPath{
		own("data", c.Data), own("execution.servers_dir", e.ServersDir), own("execution.skills_dir", e.SkillsDir),
		own("execution.rootfs", e.Rootfs), own("execution.sandbox_image", e.SandboxImage),
	}
	for name, pool := range c.Pools {
		out = append(out, own("pools."+name+".image", pool.Image))
	}
	return out
}

func own(what, path string) ownPath { return ownPath{what: what, path: path} }

// ownPaths returns the paths that the settings name, and those that this process depends on.
func (c *Config) ownPaths() []ownPath {
	e := c.Execution
	paths := append(c.directories(),
		own("the working directory, whose config.yaml and .env the next start reads", "."),
		own("logging.file", c.Logging.File), own("http.tls_cert", c.HTTP.TLSCert), own("http.tls_key", c.HTTP.TLSKey),
		own("nats.creds", c.NATS.Creds), own("nats.tls_ca", c.NATS.TLSCA), own("nats.tls_cert", c.NATS.TLSCert),
		own("nats.tls_key", c.NATS.TLSKey), own("execution.runsc", e.Runsc), own("execution.msb", e.Msb),
		own("execution.requirements", e.Requirements),
	)
	for _, name := range c.filesRead {
		paths = append(paths, own("the configuration, or a file that it names", name))
	}
	for name, pool := range c.Pools {
		paths = append(paths, own("pools."+name+".requirements", pool.Requirements))
	}
	if path, err := os.Executable(); err == nil {
		paths = append(paths, own("this program, and those that it starts", filepath.Dir(path)))
	}
	for name, value := range parseEnv(c.source.Env) {
		if fileVariables.MatchString(name) {
			for _, path := range filepath.SplitList(value) {
				if strings.Contains(path, "/") { // else it is a number or a word
					paths = append(paths, ownPath{"the variable " + name, path, name != "PATH"})
				}
			}
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		paths = append(paths, own("the home directory", home))
		for _, name := range []string{".config/pip", ".pip", ".docker", ".netrc"} {
			paths = append(paths, own("what pip or a registry's client reads in the home directory", home+"/"+name))
		}
	}
	if u, err := user.Current(); err == nil {
		paths = append(paths, own("the home directory", u.HomeDir))
	}
	for _, s := range c.MCPServers {
		if s.Command != "" && (s.Enabled == nil || *s.Enabled) {
			paths = append(paths, s.paths()...)
		}
	}
	return slices.DeleteFunc(paths, func(p ownPath) bool { return p.path == "" })
}

// fileVariables matches the environment variables with files and directories that the fleet, pip or a registry's client
// reads.
var fileVariables = regexp.MustCompile(`^(?:PATH|DOCKER_CONFIG|REGISTRY_AUTH_FILE|XDG_CONFIG_(?:HOME|DIRS)|` +
	`XDG_RUNTIME_DIR|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NETRC|OTEL_EXPORTER_OTLP_.*|PIP_.*)$`)

// paths returns what in the settings of a server may be a path: an interpreter runs what its arguments and environment
// name, in many ways. It does not find paths that a program composes.
func (s *MCPServer) paths() []ownPath {
	cwd := cmp.Or(s.Cwd, ".")
	paths := []ownPath{own("the cwd of the MCP server "+s.Name, cwd)}
	add := func(what, word string) {
		if !filepath.IsAbs(word) {
			word = cwd + "/" + word // not cleaned: .. goes up from where a link leads
		}
		paths = append(paths, ownPath{what + " of the MCP server " + s.Name, word, true})
	}
	if strings.Contains(s.Command, "/") {
		add("the command", s.Command)
	} else if found, err := exec.LookPath(s.Command); err == nil {
		add("the command", found)
	}
	separators := func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("=,:;&|<>()@\"'`", r) }
	addWords := func(what, text string) {
		words := strings.FieldsFunc(text, separators)
		if text != "" {
			words = append(words, text)
		}
		for _, word := range words {
			if strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && len(word) > 2 {
				add(what, word[2:]) // as in -I./lib
			}
			add(what, word)
		}
	}
	for _, arg := range s.Args {
		addWords("an argument", arg)
	}
	for name, value := range s.Env {
		addWords("the variable "+name, string(value))
	}
	if u, err := user.Lookup(s.User); err == nil {
		paths = append(paths, own("the home directory of the MCP server "+s.Name, u.HomeDir))
	}
	return paths
}

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

func isRoot(dir os.FileInfo) bool {
	root, err := os.Lstat("/")
	return err != nil || os.SameFile(root, dir)
}

// leadsThrough reports whether a path, as far as it exists, is the directory dir, is in dir, or passes through dir by
// way of symbolic links: who can write in dir can change where the path leads.
func leadsThrough(path string, dir os.FileInfo) bool {
	wd, err := os.Getwd()
	if err != nil {
		return true // unknown
	}
	if !filepath.IsAbs(path) {
		path = wd + "/" + path
	}
	if isRoot(dir) {
		return true
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
