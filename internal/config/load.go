package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// Source specifies where Load reads settings from. The zero value reads ./config.yaml and ./.env if they exist, and no
// environment.
type Source struct {
	File   string   // configuration file; the default is CODEFLEET_CONFIG, or config.yaml if it exists
	DotEnv string   // .env file; the default is .env if it exists
	Env    []string // environment, in the form of os.Environ
	Flags  []Flag   // settings from the command line; later ones take precedence
	Fleet  string   // the fleet.json whose Settings are the first Flags; may be empty

	// NoModel is true for a process that uses no model. Its environment may lack the key that the workers have, so
	// Load does not warn of settings that have no effect without a key.
	NoModel bool
}

// Flag is a setting from the command line.
type Flag struct {
	Key   string // as in the file: "http.addr"
	Value string
	Name  string // as the user typed it: "--http"
}

// Layer is a kind of source of settings.
type Layer string

// The layers, in ascending order of precedence.
const (
	LayerDefault Layer = "default"
	LayerFile    Layer = "file"
	LayerDotEnv  Layer = ".env"
	LayerEnv     Layer = "environment"
	LayerFlag    Layer = "flag"
)

// Origin is where the value of a setting came from.
type Origin struct {
	Layer Layer  `json:"layer"`
	Where string `json:"where,omitempty"` // file and line, such as config.yaml:12, or the variable or flag
}

func (o Origin) String() string {
	switch o.Layer {
	case LayerFile:
		return o.Where
	case LayerDotEnv, LayerEnv, LayerFlag:
		return string(o.Layer) + " " + o.Where
	case LayerDefault:
	}
	return string(LayerDefault)
}

// Problem is one error in the settings.
type Problem struct {
	Where   string `json:"where,omitempty"` // as in Origin
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

func (p Problem) String() string {
	parts := slices.DeleteFunc([]string{p.Where, p.Key, p.Message}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// InvalidError lists all errors in the settings, one per line.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return "configuration: " + strings.Join(lines, "\n  ")
}

// Load reads all layers of s and checks the settings. The error is an *InvalidError with all problems. Load does not
// write files and does not read the process's environment.
func Load(s Source) (*Config, error) {
	l := load(s)
	if len(l.problems) > 0 {
		return nil, &InvalidError{Problems: l.problems}
	}
	return l.cfg, nil
}

func load(s Source) *loader {
	l := &loader{cfg: Default(), env: parseEnv(s.Env)}
	l.cfg.origins, l.cfg.source, l.cfg.files = map[string]Origin{}, s, map[string]fileStamp{}
	l.keys = keysOf(l.cfg)
	l.readDotEnv(s.DotEnv)
	l.readFile(s.File)
	l.apply(LayerDotEnv, l.dotenv)
	l.apply(LayerEnv, l.env)
	l.applyFlags(s.Flags)
	l.derive()
	l.warnNoEffect()
	l.warnUnknown()
	l.problems = append(l.problems, l.cfg.check()...)
	return l
}

// stamp records the state of a file that is about to be read, so that a Reloader notices later changes. It is called
// for the configuration file, and for files that contain the value of one setting, such as nats.password_file.
func (l *loader) stamp(path string) {
	if _, known := l.cfg.files[path]; !known {
		l.cfg.files[path] = stampOf(path)
	}
}

// read reads a small file, and records its name.
func (l *loader) read(path string) ([]byte, error) {
	l.cfg.filesRead = append(l.cfg.filesRead, path)
	return readSmall(path)
}

// Origin returns where the value of a key, such as "nats.url", came from.
func (c *Config) Origin(key string) Origin {
	if o, ok := c.origins[key]; ok {
		return o
	}
	return Origin{Layer: LayerDefault}
}

// Validate checks settings that a program changed after Load. The error is an *InvalidError.
func (c *Config) Validate() error {
	if problems := c.check(); len(problems) > 0 {
		return &InvalidError{Problems: problems}
	}
	return nil
}

// loader loads settings, and collects their problems.
type loader struct {
	cfg         *Config
	keys        []key
	env, dotenv map[string]string
	problems    []Problem
}

func (l *loader) problem(where, key, format string, args ...any) {
	l.problems = append(l.problems, Problem{Where: where, Key: key, Message: fmt.Sprintf(format, args...)})
}

func (l *loader) warn(where, text string) {
	l.cfg.Warnings = append(l.cfg.Warnings, where+": "+text)
}

func (l *loader) lookup(name string) string { return cmp.Or(l.env[name], l.dotenv[name]) }

func (l *loader) applyFlags(flags []Flag) {
	for _, f := range flags {
		i := slices.IndexFunc(l.keys, func(k key) bool { return k.path == f.Key })
		if i < 0 {
			l.problem(f.Name, f.Key, "is not a setting")
			continue
		}
		l.set(l.keys[i], f.Value, Origin{LayerFlag, f.Name})
	}
}

func (l *loader) set(k key, text string, from Origin) {
	if k.isHeader() && strings.ContainsFunc(strings.TrimSpace(text), unicode.IsControl) {
		l.problem(from.Where, k.path, "contains a newline or another control character")
		return
	}
	if err := setText(k.value, text); err != nil {
		l.problem(from.Where, k.path, "%v", err)
		return
	}
	l.cfg.origins[k.path] = from
}

// derive sets values that depend on the host, on other settings or on other files.
func (l *loader) derive() {
	c := l.cfg
	if c.Data == "" {
		dir, err := DataDir(l.lookup)
		if err != nil {
			l.problem("", "data", "%v", err)
		}
		c.Data = dir
	}
	if c.Worker.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		c.Worker.Name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	l.deriveModel()
	if len(c.Tenants) == 0 {
		c.Tenants = map[string]Tenant{DefaultTenant: {}}
	}
	l.readTokens("auth.operators", c.Auth.Operators)
	l.readSecrets("workspaces.encryption", &c.Workspaces.Encryption)
	if c.Privacy.KeyFile != "" {
		c.Privacy.Key = l.readSecret("privacy.key_file", c.Privacy.KeyFile)
	}
	for name, t := range c.Tenants {
		l.readTokens("tenants."+name+".tokens", t.Tokens)
		l.readSecrets("tenants."+name+".encryption", &t.Encryption)
		c.Tenants[name] = t
	}
}

// deriveModel selects the provider azure_openai if an Azure endpoint is given, unless llm.provider is set. It enables
// the model if the provider's endpoint or, for the provider openai, a key is given, unless llm.enabled is set.
func (l *loader) deriveModel() {
	c := l.cfg
	if c.LLM.AzureEndpoint != "" && c.Origin("llm.provider").Layer == LayerDefault {
		c.LLM.Provider, c.origins["llm.provider"] = azureProvider, c.Origin("llm.azure_endpoint")
	}
	if c.Origin("llm.enabled").Layer != LayerDefault {
		return
	}
	keys := []string{"llm.base_url", "llm.api_key", "llm.openai_api_key"}
	if c.LLM.Provider == azureProvider {
		keys = []string{"llm.azure_endpoint"}
	}
	given := map[string]string{
		"llm.azure_endpoint": c.LLM.AzureEndpoint, "llm.base_url": c.LLM.BaseURL,
		"llm.api_key": string(c.LLM.APIKey), "llm.openai_api_key": string(c.LLM.OpenAIAPIKey),
	}
	for _, key := range keys {
		if given[key] != "" {
			c.LLM.Enabled, c.origins["llm.enabled"] = true, c.Origin(key)
			return
		}
	}
}

// DataDir returns the default data directory. lookup returns the value of an environment variable.
func DataDir(lookup func(string) string) (string, error) {
	if dir := lookup("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "codefleet"), nil
	}
	if home := lookup("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "share", "codefleet"), nil
	}
	return "", errors.New("HOME is not set: set the directory with --data, CODEFLEET_DATA, or data: in the file")
}

// exists reports whether an optional file exists. If that is unknown it returns true, so that reading the file reports
// the error.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
