package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// FleetFile is the content of fleet.json: the addresses of a running fleet, and the credentials that `codefleet up`
// generates at its first start. Access to the file gives the permissions of an operator.
type FleetFile struct {
	URL    string `json:"url"`    // address of the HTTP interface
	Token  string `json:"token"`  // a bearer token with every scope
	Tenant string `json:"tenant"` // the tenant of Token

	NATS FleetNATS `json:"nats"`
	S3   FleetS3   `json:"s3"`

	Data    string    `json:"data"` // the data directory
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Version string    `json:"version"`
}

// FleetNATS is the address of the queue, with the credentials of workers and ingest and of each tenant.
type FleetNATS struct {
	URL      string                   `json:"url"`
	User     string                   `json:"user"`
	Password string                   `json:"password"`
	Tenants  map[string]FleetNATSUser `json:"tenants,omitempty"`
}

// FleetNATSUser is a user of the queue.
type FleetNATSUser struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// FleetS3 is the address and the credentials of the object store.
type FleetS3 struct {
	Endpoint  string `json:"endpoint"`
	Bucket    string `json:"bucket"`
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
}

// FleetFileName is the name of the file in a data directory.
const FleetFileName = "fleet.json"

// ReadFleetFile reads a fleet.json. The error wraps fs.ErrNotExist if the file does not exist.
func ReadFleetFile(path string) (FleetFile, error) {
	var f FleetFile
	data, err := readSmall(path)
	if errors.Is(err, syscall.EISDIR) {
		return f, fmt.Errorf("fleet file %s: %w: want its fleet.json", path, syscall.EISDIR)
	}
	if err != nil {
		return f, fmt.Errorf("read fleet file: %w", err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("%s is not a fleet.json: %w", path, text.NotJSON(err))
	}
	return f, nil
}

// Write atomically replaces the file at path. Only its owner can read it.
func (f FleetFile) Write(path string) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".fleet-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write fleet file: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(data, '\n'))
	if err = cmp.Or(err, tmp.Close()); err != nil {
		return fmt.Errorf("write fleet file: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write fleet file: %w", err)
	}
	return nil
}

// Settings returns the settings of a worker or ingest process that joins the fleet. name is the flag that named the
// file; it becomes the origin of the settings.
func (f FleetFile) Settings(name string) []Flag {
	return []Flag{
		{"nats.url", f.NATS.URL, name},
		{"nats.user", f.NATS.User, name},
		{"nats.password", f.NATS.Password, name},
		{"nats.token", "", name},
		{"nats.creds", "", name},
		{"nats.tls_ca", "", name},
		{"nats.tls_cert", "", name},
		{"nats.tls_key", "", name},
		{"s3.endpoint", f.S3.Endpoint, name},
		{"s3.region", Default().S3.Region, name},
		{"s3.bucket", f.S3.Bucket, name},
		{"s3.access_key", f.S3.AccessKey, name},
		{"s3.secret_key", f.S3.SecretKey, name},
	}
}

// Rejoin loads the settings again, with the addresses and credentials that are now in fleet.json: `codefleet up` may
// have restarted with others. ok is false if fleet.json does not exist or cannot be read, or if the settings cannot be
// loaded.
func (c *Config) Rejoin() (now *Config, ok bool) {
	s := c.source
	f, ok := c.FleetFile()
	if !ok {
		return nil, false
	}
	name := "--fleet " + s.Fleet
	others := slices.DeleteFunc(slices.Clone(s.Flags), func(g Flag) bool { return g.Name == name })
	s.Flags = append(f.Settings(name), others...)
	now, err := Load(s)
	return now, err == nil
}

// FleetFile reads again the fleet.json from which the settings come. ok is false if there is no such file, or if it
// cannot be read: the fleet has stopped, and may start again.
func (c *Config) FleetFile() (f FleetFile, ok bool) {
	if c.source.Fleet == "" {
		return f, false
	}
	f, err := ReadFleetFile(c.source.Fleet)
	return f, err == nil
}

// unusedByUp are the settings that `codefleet up` does not use. It has a queue and an object store of its own.
var unusedByUp = []string{
	"nats.url", "nats.creds", "nats.user", "nats.password", "nats.token",
	"nats.tls_ca", "nats.tls_cert", "nats.tls_key",
	"s3.endpoint", "s3.region", "s3.access_key", "s3.secret_key", "telemetry.addr",
}

// UnusedByUp returns a warning for each section with settings that `codefleet up` does not use.
func (c *Config) UnusedByUp() []string {
	given, values, defaults := map[string][]string{}, c.byKey(), Default().byKey()
	for _, key := range unusedByUp {
		if from := c.Origin(key); from.Layer != LayerDefault && values[key] != defaults[key] {
			section, _, _ := strings.Cut(key, ".")
			given[section] = append(given[section], settingOf(from, key))
		}
	}
	var warnings []string
	for section, instead := range map[string]string{
		"nats": "uses its embedded queue", "s3": "uses its embedded object store",
		"telemetry": "serves /metrics and /healthz on http.addr",
	} {
		if keys := given[section]; len(keys) > 0 {
			warnings = append(warnings, strings.Join(keys, ", ")+": no effect: `codefleet up` "+instead)
		}
	}
	slices.Sort(warnings)
	return warnings
}

// UseEmbedded replaces the settings of the queue and the object store with those of the embedded servers of
// `codefleet up`.
func (c *Config) UseEmbedded(f FleetFile) {
	n, s := &c.NATS, &c.S3
	n.URL, n.User, n.Password, n.Token, n.Creds = f.NATS.URL, f.NATS.User, Secret(f.NATS.Password), "", ""
	n.TLSCA, n.TLSCert, n.TLSKey = "", "", ""
	s.Endpoint, s.AccessKey, s.SecretKey = f.S3.Endpoint, f.S3.AccessKey, Secret(f.S3.SecretKey)
	s.Region, s.Embedded = Default().S3.Region, true
}
