package config

import (
	"os"
	"sync"
	"time"
)

// Reloader loads settings again when the configuration file, or a file that contains the value of one setting, has
// changed. It does not notice changes of .env and of files with tokens or with secrets of the sections encryption and
// privacy. It is safe for concurrent use.
type Reloader struct {
	mu     sync.Mutex
	source Source
	files  map[string]fileStamp
	live   string // the live folder that this process serves
}

// fileStamp identifies the content of a file. The zero value is that of a missing file.
type fileStamp struct {
	size     int64
	modified time.Time
}

// NewReloader returns a reloader of settings that Load returned. Settings that did not come from Load never change.
func NewReloader(c *Config) *Reloader {
	return &Reloader{source: c.source, files: c.files, live: c.LiveFolder()}
}

// Changed loads the settings again if one of these files has changed since the last call. Otherwise it returns nil. A
// change that makes the settings invalid returns an error once.
func (r *Reloader) Changed() (*Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	for name, stamp := range r.files {
		changed = changed || stampOf(name) != stamp
	}
	if !changed {
		return nil, nil
	}
	l := load(r.source)
	r.files = l.cfg.files
	if len(l.problems) > 0 {
		return nil, &InvalidError{Problems: l.problems}
	}
	served := *l.cfg
	served.Execution.WorkspaceDir = r.live // until the restart
	if err := served.CheckLiveFolder(); err != nil {
		return nil, err
	}
	return l.cfg, nil
}

func stampOf(name string) fileStamp {
	info, err := os.Stat(name)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.Size(), info.ModTime()}
}
