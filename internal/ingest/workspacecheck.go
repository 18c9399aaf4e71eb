package ingest

import (
	"net/http"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/schemas"
)

func (s *Server) postCheck(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	o, err := readJSON[schemas.CheckOptions](s, w, r)
	if err != nil {
		return err
	}
	if (o.Part != 0 || o.Of != 0) && (o.Part < 1 || o.Part > o.Of || o.Of > 256) {
		return badParameter("/part", "it must be from 1 to `of`, which is at most 256")
	}
	result, err := maintenance.Check(r.Context(), s.o.Workspaces.Repo(), ref, maintenance.CheckOptions(o))
	if err != nil {
		return err
	}
	return respond(w, schemas.CheckReport{
		Versions: result.Versions, Packs: result.Packs, Read: result.Read,
		Problems: append([]string{}, result.Problems...), Lost: append([]string{}, result.Lost...),
	}, nil)
}

func (s *Server) postRepair(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	o, err := readJSON[schemas.RepairOptions](s, w, r)
	if err != nil {
		return err
	}
	result, err := maintenance.Repair(r.Context(), s.o.Workspaces.Repo(), ref, maintenance.RepairOptions(o))
	if err != nil {
		return err
	}
	lost := make([]schemas.LostPath, len(result.Lost))
	for i, p := range result.Lost {
		lost[i] = schemas.LostPath(p)
	}
	return respond(w, schemas.RepairReport{
		Commit: commitOf(result.Commit), Problems: append([]string{}, result.Problems...), Lost: lost,
		LostGenerations: append([]int64{}, result.LostGenerations...),
		Recovered:       append([]string{}, result.Recovered...),
	}, nil)
}

func (s *Server) postMirror(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	result, err := s.o.Mirror.Update(r.Context(), ref)
	result.Skipped = append([]string{}, result.Skipped...)
	return respond(w, result, err)
}
