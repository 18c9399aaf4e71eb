package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/codefleet/codefleet/internal/limited"
	"github.com/codefleet/codefleet/internal/text"
)

// ErrNoFleet is returned by Locate and LocateNATS if neither a file nor the environment names a fleet. LocateNATS also
// returns it if the named file does not exist, and so do the requests of a client that knows only Located.Path.
var ErrNoFleet = errors.New("no fleet found: start one with `codefleet up`, or set CODEFLEET_URL " +
	"(for its queue: CODEFLEET_NATS_URL)")

// FleetFile is the part of a fleet.json that a client needs. `codefleet up` writes the file. Only its owner can read
// it.
type FleetFile struct {
	URL   string `json:"url"` // address of the HTTP interface
	Token string `json:"token"`
}

// Locate finds a fleet as the command line does. It uses the first of these that is set: the fleet.json at path, the
// fleet.json that CODEFLEET_FLEET names, CODEFLEET_URL with CODEFLEET_TOKEN, the fleet.json in CODEFLEET_DATA or in the
// default data directory. It does not connect to the fleet. If the fleet.json does not exist, Locate returns
// ErrNoFleet, or fs.ErrNotExist if the file was named, with Options that contain its path. A client created with them
// connects once the fleet runs.
func Locate(path string) (Options, error) {
	return locate(path, os.Getenv) //nolint:forbidigo // reading the environment is its purpose
}

func locate(path string, env func(string) string) (Options, error) {
	if path = cmp.Or(path, env("CODEFLEET_FLEET")); path != "" {
		return ReadFleetFile(path)
	}
	if u := env("CODEFLEET_URL"); u != "" {
		o := Options{URL: u, Token: env("CODEFLEET_TOKEN")}
		err := o.cleanToken("CODEFLEET_TOKEN")
		return o, err
	}
	dir, err := dataDir(env)
	if err != nil {
		return Options{}, ErrNoFleet
	}
	o, err := ReadFleetFile(filepath.Join(dir, "fleet.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return o, ErrNoFleet
	}
	return o, err
}

// ReadFleetFile reads a fleet.json.
func ReadFleetFile(path string) (Options, error) {
	o := Options{Located: Located{path, true}}
	var f FleetFile
	if err := decodeFleetFile(path, &f); err != nil {
		return o, err
	}
	if f.URL == "" {
		return o, badOptions("read fleet file %s: url is missing", path)
	}
	o.URL, o.Token = f.URL, f.Token
	err := o.cleanToken("token in " + path)
	return o, err
}

// cleanToken removes the newline at the end of the token, which a file with a token usually has. It returns an error
// that begins with name if the token contains another character that a request cannot carry.
func (o *Options) cleanToken(name string) error {
	o.Token = strings.TrimRight(o.Token, "\r\n")
	if hasControl(o.Token) {
		return badOptions("%s contains a newline or another control character; want the token alone", name)
	}
	return nil
}

// hasControl reports whether s contains a control character, which the header of a request cannot carry.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// maxFleetFile is the size limit of a fleet.json in bytes.
const maxFleetFile = 1 << 20

// decodeFleetFile decodes a fleet.json into v.
func decodeFleetFile(path string, v any) error {
	if strings.Contains(path, "://") {
		return badOptions("fleet file %q is an address; want the path of a file, or set CODEFLEET_URL",
			text.HideCredentials(path))
	}
	data, err := limited.ReadFile(path, maxFleetFile)
	if errors.Is(err, fs.ErrNotExist) { // the fleet may not have started yet
		return fmt.Errorf("read fleet file: %w", err)
	}
	if errors.Is(err, syscall.EISDIR) {
		return &OptionsError{"fleet file " + path, fmt.Errorf("%w: want its fleet.json", syscall.EISDIR)}
	}
	if err != nil {
		return &OptionsError{"read fleet file", err}
	}
	if err := json.Unmarshal(data, v); err != nil {
		return &OptionsError{path + " is not a fleet.json", text.NotJSON(err)}
	}
	return nil
}

// LocateNATS finds the queue of a fleet, for an application that registers tools or submits over NATS. It uses the
// first of these that is set: the fleet.json at path, the fleet.json that CODEFLEET_FLEET names, CODEFLEET_NATS_URL
// with CODEFLEET_NATS_CREDS, the fleet.json in the data directory. tenant selects the credentials in a fleet.json; if
// it is empty, the file's tenant does.
func LocateNATS(path, tenant string) (Options, error) {
	return locateNATS(path, tenant, os.Getenv) //nolint:forbidigo // reading the environment is its purpose
}

func locateNATS(path, tenant string, env func(string) string) (Options, error) {
	path = cmp.Or(path, env("CODEFLEET_FLEET"))
	if u := env("CODEFLEET_NATS_URL"); path == "" && u != "" {
		return Options{URL: u, NATSCredentials: env("CODEFLEET_NATS_CREDS"), Tenant: tenant}, nil
	}
	if path == "" {
		dir, err := dataDir(env)
		if err != nil {
			return Options{}, ErrNoFleet
		}
		path = filepath.Join(dir, "fleet.json")
	}
	var f struct {
		Tenant string `json:"tenant"`
		NATS   struct {
			URL     string `json:"url"`
			Tenants map[string]struct {
				User     string `json:"user"`
				Password string `json:"password"`
			} `json:"tenants"`
		} `json:"nats"`
	}
	err := decodeFleetFile(path, &f)
	if errors.Is(err, fs.ErrNotExist) {
		return Options{}, fmt.Errorf("%w (%s does not exist)", ErrNoFleet, path)
	}
	if err != nil {
		return Options{}, err
	}
	tenant = cmp.Or(tenant, f.Tenant)
	u, ok := f.NATS.Tenants[tenant]
	if !ok || f.NATS.URL == "" {
		return Options{}, badOptions("read fleet file %s: no queue credentials for the tenant %q", path, tenant)
	}
	return Options{
		URL: f.NATS.URL, Located: Located{path, true}, Tenant: tenant,
		NATSUser: u.User, NATSPassword: u.Password,
	}, nil
}

// dataDir returns the directory in which `codefleet up` keeps its data.
func dataDir(env func(string) string) (string, error) {
	if d := env("CODEFLEET_DATA"); d != "" {
		return d, nil
	}
	if d := env("XDG_DATA_HOME"); filepath.IsAbs(d) { // the specification says to ignore relative paths
		return filepath.Join(d, "codefleet"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "share", "codefleet"), nil
}
