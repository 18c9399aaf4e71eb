package ingest

import (
	"net/http"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
)

// checkOptions is the body of POST …/check.
type checkOptions struct {
	ReadData bool `json:"read_data,omitempty"` // verify contents as well, not only presence and size
	// With read_data, only one part of the contents is verified: Part, from 1, of Of equal parts. Zero verifies all.
	Part int `json:"part,omitempty"`
	Of   int `json:"of,omitempty"`
}

// checkReport is the response to POST …/check.
type checkReport struct {
	Versions int      `json:"versions"`
	Packs    int      `json:"packs"`
	Read     int      `json:"read"` // packs whose content was verified
	Problems []string `json:"problems"`
	Lost     []string `json:"lost"` // paths of the newest version that cannot be read
}

func (s *Server) postCheck(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	o, err := readJSON[checkOptions](s, w, r)
	if err != nil {
		return err
	}
	if o.Of < 0 || o.Of > 256 || o.Part < 0 || o.Part > o.Of {
		return badParameter("part", "it must be from 1 to `of`, which is at most 256")
	}
	result, err := maintenance.Check(r.Context(), s.o.Workspaces.Repo(), ref, maintenance.CheckOptions(o))
	if err != nil {
		return err
	}
	return respond(w, checkReport{
		result.Versions, result.Packs, result.Read, append([]string{}, result.Problems...),
		append([]string{}, result.Lost...),
	}, nil)
}

// repairOptions is the body of POST …/repair.
type repairOptions struct {
	ReadData bool `json:"read_data,omitempty"` // verify contents as well, not only presence and size
	DryRun   bool `json:"dry_run,omitempty"`   // change nothing
}

// repairReport is the response to POST …/repair.
type repairReport struct {
	Commit    commit                 `json:"commit"`
	Problems  []string               `json:"problems"`
	Lost      []maintenance.LostPath `json:"lost"`
	Unknown   []int64                `json:"unknown"`   // lost generations, whose changes are lost too
	Recovered []string               `json:"recovered"` // files with recovered content whose names are lost
}

func (s *Server) postRepair(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	o, err := readJSON[repairOptions](s, w, r)
	if err != nil {
		return err
	}
	result, err := maintenance.Repair(r.Context(), s.o.Workspaces.Repo(), ref, maintenance.RepairOptions(o))
	if err != nil {
		return err
	}
	return respond(w, repairReport{
		Commit: commitOf(result.Commit), Problems: append([]string{}, result.Problems...),
		Lost:    append([]maintenance.LostPath{}, result.Lost...),
		Unknown: append([]int64{}, result.LostGenerations...), Recovered: append([]string{}, result.Recovered...),
	}, nil)
}

func (s *Server) postMirror(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	result, err := s.o.Mirror.Update(r.Context(), ref)
	result.Skipped = append([]string{}, result.Skipped...)
	return respond(w, result, err)
}
