package ingest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// pauseIn is the body of POST /v1/pause and POST /v1/resume.
type pauseIn struct {
	Target string `json:"target"` // fleet, pool/NAME or tenant/NAME
	Reason string `json:"reason,omitempty"`
}

// resumed is the response of POST /v1/resume.
type resumed struct {
	Target string `json:"target"`
	Was    bool   `json:"was_paused"`
}

func (s *Server) getPauses(w http.ResponseWriter, r *http.Request) error {
	list, err := s.queue.Pauses(r.Context())
	return respondList(w, list, err)
}

func (s *Server) postPause(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[pauseIn](s, w, r)
	if err != nil {
		return err
	}
	p := schemas.Pause{Target: in.Target, Reason: in.Reason, By: identityOf(r.Context()).name}
	p, err = s.queue.Pause(r.Context(), p)
	return respond(w, p, err)
}

func (s *Server) postResume(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[pauseIn](s, w, r)
	if err != nil {
		return err
	}
	was, err := s.queue.Resume(r.Context(), in.Target)
	return respond(w, resumed{Target: in.Target, Was: was}, err)
}

func (s *Server) getAllLimits(w http.ResponseWriter, r *http.Request) error {
	list, err := s.queue.AllLimits(r.Context())
	return respondList(w, list, err)
}

func (s *Server) getLimits(w http.ResponseWriter, r *http.Request) error {
	info, err := s.queue.Limits(r.Context(), r.PathValue("tenant"))
	return respond(w, info, err)
}

func (s *Server) putLimits(w http.ResponseWriter, r *http.Request) error {
	return s.writeLimits(w, r, s.queue.SetLimits)
}

func (s *Server) patchLimits(w http.ResponseWriter, r *http.Request) error {
	return s.writeLimits(w, r, s.queue.ChangeLimits)
}

func (s *Server) writeLimits(
	w http.ResponseWriter, r *http.Request,
	write func(ctx context.Context, tenant string, in schemas.TenantLimits) (schemas.TenantLimitsInfo, error),
) error {
	body, err := s.readJSONBody(w, r)
	if err != nil {
		return err
	}
	var set schemas.TenantLimits
	// Unlike readJSON, decodeJSON refuses an empty body, which with PUT would restore the limits of the settings.
	if err := decodeJSON(body, &set); err != nil {
		return err
	}
	info, err := write(r.Context(), r.PathValue("tenant"), set)
	return respond(w, info, err)
}

// getUsage responds with the usage of the caller's tenant. With all=true, which is for operators, it responds with the
// usage of all tenants.
func (s *Server) getUsage(w http.ResponseWriter, r *http.Request) error {
	id, q := identityOf(r.Context()), r.URL.Query()
	tenant := id.tenant
	all, err := flagOf(r, "all")
	if err != nil {
		return err
	}
	if all {
		if !slices.Contains(id.scopes, ScopeOperator) {
			e := apierror.New(errcode.Forbidden, "this token does not permit the request")
			e.Cause = "it lacks the scope " + ScopeOperator
			return e
		}
		tenant = ""
	} else if tenant == "" || !slices.Contains(id.scopes, ScopeRead) {
		e := apierror.New(errcode.Forbidden, "this token does not permit the request")
		e.Hint = "use a token of a tenant with the scope read, or all=true with the scope operator"
		return e
	}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	from, err := dayOf(q.Get("since"), today.AddDate(0, 0, -30))
	if err != nil {
		return badParameter("since", "it must be a day, as in 2026-11-23")
	}
	to, err := dayOf(q.Get("before"), today.AddDate(0, 0, 1))
	if err != nil {
		return badParameter("before", "it must be a day, as in 2026-11-23")
	}
	if !from.Before(to) {
		return badParameter("since", "it must be a day before "+to.Format(time.DateOnly))
	}
	list, err := s.queue.Usage(r.Context(), tenant, from, to.AddDate(0, 0, -1))
	return respondList(w, list, err)
}

// flagOf reads a parameter that is true or false; by default it is false.
func flagOf(r *http.Request, name string) (bool, error) {
	value := r.URL.Query().Get(name)
	if value == "" {
		return false, nil
	}
	set, err := strconv.ParseBool(value)
	if err != nil {
		return false, badParameter(name, "it must be true or false")
	}
	return set, nil
}

func dayOf(s string, otherwise time.Time) (time.Time, error) {
	if s == "" {
		return otherwise, nil
	}
	return time.Parse(time.DateOnly, s)
}

func (s *Server) getWhy(w http.ResponseWriter, r *http.Request, tenant, id string) error {
	why, err := s.queue.Why(r.Context(), tenant, id)
	return respond(w, why, err)
}
