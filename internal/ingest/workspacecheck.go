package ingest

import (
	"net/http"
	"time"

	"github.com/codefleet/codefleet/internal/state/maintenance"
)

// checkOptions is the body of POST …/check.
type checkOptions struct {
	ReadData bool `json:"read_data,omitempty"` // verify contents as well, not only the index
	Part     int  `json:"part,omitempty"`      // with read_data: only the part-th of `of` equal parts
	Of       int  `json:"of,omitempty"`
}

// checkReport is the response to POST …/check.
type checkReport struct {
	Versions int      `json:"versions"`
	Packs    int      `json:"packs"`
	Read     int      `json:"read"` // packs whose content was verified
	Problems []string `json:"problems"`
	Lost     []string `json:"lost"` // paths of the newest version that cannot be read
}

func (s *Server) postCheck(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	o, err := readJSON[checkOptions](s, w, r)
	if err != nil {
		return err
	}
	if o.Of < 0 || o.Of > 256 || o.Part < 0 || o.Part > o.Of {
		return badParameter("part", "it must be from 1 to `of`, which is at most 256")
	}
	_ = http.NewResponseController(w).
		SetWriteDeadline(time.Time{})
		// it may read gigabytes; a caller that disconnects ends it
	found, err := maintenance.Check(r.Context(), s.o.Workspaces.Repo(), ref, maintenance.CheckOptions(o))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, checkReport{
		found.Versions, found.Packs, found.Read, append([]string{}, found.Problems...),
		append([]string{}, found.Lost...),
	})
	return nil
}

// repairOptions is the body of POST …/repair.
type repairOptions struct {
	ReadData bool `json:"read_data,omitempty"` // verify all contents, not only presence and size
	DryRun   bool `json:"dry_run,omitempty"`   // report only
}

// repairReport is the response to POST …/repair.
type repairReport struct {
	Commit    commit                 `json:"commit"`
	Problems  []string               `json:"problems"`
	Lost      []maintenance.LostPath `json:"lost"`
	Unknown   []int64                `json:"unknown"`   // lost generations, whose changes are lost too
	Recovered []string               `json:"recovered"` // files with recovered content whose names are lost
}

func (s *Server) postRepair(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	o, err := readJSON[repairOptions](s, w, r)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).
		SetWriteDeadline(time.Time{})
		// it may read gigabytes; a caller that disconnects ends it
	done, err := maintenance.Repair(r.Context(), s.o.Workspaces.Repo(), ref, maintenance.RepairOptions(o))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, repairReport{
		commitOf(done.Commit), append([]string{}, done.Problems...), append([]maintenance.LostPath{}, done.Lost...),
		append([]int64{}, done.LostGenerations...), append([]string{}, done.Recovered...),
	})
	return nil
}

func (s *Server) postMirror(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).
		SetWriteDeadline(time.Time{})
		// it may write gigabytes; a caller that disconnects ends it
	done, err := s.o.Mirror.Update(r.Context(), ref)
	if err != nil {
		return err
	}
	done.Skipped = append([]string{}, done.Skipped...)
	writeJSON(w, http.StatusOK, done)
	return nil
}
