package ingest

import (
	"net/http"
	"time"

	"github.com/codefleet/codefleet/internal/state/maintenance"
)

// checked is what POST …/check answers.
type checked struct {
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
	o, err := body[struct {
		ReadData bool `json:"read_data"`
		Part     int  `json:"part"`
		Of       int  `json:"of"`
	}](s, w, r)
	if err != nil {
		return err
	}
	if o.Of < 0 || o.Of > 256 || o.Part < 0 || o.Part > o.Of {
		return badParameter("part", "it is from 1 to `of`, which is at most 256")
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it may read gigabytes; the caller may leave
	found, err := maintenance.Check(r.Context(), s.o.Workspaces.Repo(), ref, maintenance.CheckOptions(o))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, checked{found.Versions, found.Packs, found.Read, append([]string{}, found.Problems...), append([]string{}, found.Lost...)})
	return nil
}

// repaired is what POST …/repair answers.
type repaired struct {
	Commit    commit                 `json:"commit"`
	Problems  []string               `json:"problems"`
	Lost      []maintenance.LostPath `json:"lost"`
	Unknown   []int64                `json:"unknown"`   // generations that are lost, and with them what only they changed
	Recovered []string               `json:"recovered"` // files of content that no name is known for
}

func (s *Server) postRepair(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	o, err := body[struct {
		ReadData bool `json:"read_data"`
		DryRun   bool `json:"dry_run"`
	}](s, w, r)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it may read gigabytes; the caller may leave
	done, err := maintenance.Repair(r.Context(), s.o.Workspaces.Repo(), ref, maintenance.RepairOptions(o))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, repaired{
		commitOf(done.Commit), append([]string{}, done.Problems...), append([]maintenance.LostPath{}, done.Lost...),
		append([]int64{}, done.Unknown...), append([]string{}, done.Recovered...),
	})
	return nil
}

func (s *Server) postMirror(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it may write gigabytes; the caller may leave
	done, err := s.o.Mirror.Update(r.Context(), ref)
	if err != nil {
		return err
	}
	done.Skipped = append([]string{}, done.Skipped...)
	writeJSON(w, http.StatusOK, done)
	return nil
}
