package ingest

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// skillRoutes returns the routes about skills, which internal/skills stores.
func (s *Server) skillRoutes() []route {
	return []route{
		row("GET /v1/skills", ScopeRead, s.library(s.getSkills), "listSkills", "List skills").
			note("The tenant's skills, and those that all tenants share.").
			returns(200, "[]Skill").
			fails(skillErrors...),
		row("GET /v1/skills/{skill}", ScopeRead, s.library(s.getSkill), "getSkill", "Read a skill with its files").
			takes("version").
			returns(200, "SkillContent").
			fails(skillErrors...).fails(errcode.BadParameter, errcode.UnknownSkill),
		row("GET /v1/skills/{skill}/versions", ScopeRead, s.library(s.getSkillVersions),
			"listSkillVersions", "List the kept versions of a skill, the newest first").
			returns(200, "[]SkillVersion").
			fails(skillErrors...).fails(errcode.UnknownSkill),
		row("PUT /v1/skills/{skill}", ScopeSubmit, s.library(s.putSkill), "saveSkill", "Save a skill").
			note("From `code`, from the program of a `task` that succeeded, or from the files of a directory in the "+
				"Agent Skills format (`content`). A skill with a program is saved only after a smoke run in a "+
				"sandbox, which changes no workspace. `base` is the version that this one replaces; without it, the "+
				"name must be free.").
			body("application/json", "SkillDraft").
			returns(200, "SavedSkill").
			fails(skillErrors...).fails(submitErrors...).
			fails(errcode.BadSkill, errcode.UnknownTask).
			fails(errcode.SkillConflict, errcode.SkillFailed, errcode.SkillLimit),
		row("DELETE /v1/skills/{skill}", ScopeSubmit, s.library(s.deleteSkill),
			"deleteSkill", "Remove a skill with all its versions").
			takes("version").
			returnsNothing(204).
			fails(skillErrors...).fails(errcode.BadParameter, errcode.UnknownSkill, errcode.SkillConflict),
	}
}

// skillErrors are the errors of all requests about skills.
var skillErrors = append(codeList{errcode.NoWorkspaces, errcode.Corrupt}, queueErrors...)

// library wraps h: it refuses requests if this process has no object store, and translates the errors of package
// skills.
func (s *Server) library(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if s.o.Skills == nil {
			return skillError(skills.ErrNoStore)
		}
		return skillError(h(w, r))
	}
}

// skillError translates the errors of package skills.
func skillError(err error) error {
	invalid, isInvalid := errors.AsType[*skills.InvalidError](err)
	version, isVersion := errors.AsType[*skills.VersionError](err)
	taken, isTaken := errors.AsType[*skills.TakenError](err)
	limit, isLimit := errors.AsType[*skills.LimitError](err)
	switch {
	case isInvalid:
		e := apierror.New(errcode.BadSkill, "the skill is not valid")
		e.Cause = text.Truncate(invalid.Error(), maxSkillCause)
		e.Hint = "docs/skills.md has the rules"
		return e
	case isVersion:
		e := apierror.New(errcode.SkillConflict, "%v", version)
		switch {
		case version.Base == 0:
			e.Hint = fmt.Sprintf("use another name, or set base to %d to replace it", version.Current)
		case version.Current == 0:
			e.Hint = "to save it as a new skill, leave out base"
		default:
			e.Hint = fmt.Sprintf("read the skill, and name version %d to replace or remove it", version.Current)
		}
		return e
	case isTaken:
		e := apierror.New(errcode.SkillConflict, "%v", taken)
		e.Hint = "use another name"
		return e
	case isLimit:
		e := apierror.New(errcode.SkillLimit, "%v", limit)
		e.Hint = "remove skills that are no longer used"
		return e
	case errors.Is(err, skills.ErrNoStore):
		e := apierror.New(errcode.NoWorkspaces, "this process has no object store for skills")
		e.Hint = "set s3.endpoint"
		return e
	case errors.Is(err, skills.ErrNotFound):
		e := apierror.New(errcode.UnknownSkill, "%v", err)
		e.Hint = "GET /v1/skills lists the skills"
		return e
	}
	return err
}

// maxSkillCause bounds the list of what is wrong with a skill, in bytes.
const maxSkillCause = 4000

func (s *Server) getSkills(w http.ResponseWriter, r *http.Request) error {
	set, err := s.o.Skills.Of(r.Context(), identityOf(r.Context()).tenant)
	if err != nil {
		return err
	}
	list := []schemas.Skill{}
	if set != nil {
		for _, k := range set.Skills {
			list = append(list, describeSkill(k))
		}
	}
	return respondList(w, list, nil)
}

func describeSkill(k skills.Stored) schemas.Skill {
	out := schemas.Skill{
		Name: k.Name, Module: "skills." + skills.ModuleOf(k.Name), Description: k.Description,
		Runnable: k.Entry != skills.EntryNone, Signature: k.Signature(), Scope: k.Scope, Version: k.Version.Version,
		Bytes: k.Bytes(), Files: len(k.Files),
		SavedAt: k.Version.SavedAt, SavedBy: k.Version.SavedBy, FromTask: k.Version.FromTask,
	}
	if out.Runnable {
		out.Import = "from " + out.Module + " import run"
	}
	return out
}

// versionOf reads ?version=, and returns 0 if it is absent.
func versionOf(r *http.Request) (int, error) {
	v := r.URL.Query().Get("version")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, badParameter("version", "it must be the number of a version, from 1")
	}
	return n, nil
}

func (s *Server) getSkill(w http.ResponseWriter, r *http.Request) error {
	version, err := versionOf(r)
	if err != nil {
		return err
	}
	k, err := s.o.Skills.Get(r.Context(), identityOf(r.Context()).tenant, r.PathValue("skill"), version)
	if err != nil {
		return err
	}
	return respond(w, schemas.SkillContent{
		Skill: describeSkill(k), License: k.License, Compatibility: k.Compatibility, AllowedTools: k.AllowedTools,
		Metadata: k.Metadata, Instructions: k.Body, Code: string(k.Files[skills.Program]),
		Content: schemas.FilesOf(k.Files),
	}, nil)
}

func (s *Server) getSkillVersions(w http.ResponseWriter, r *http.Request) error {
	versions, err := s.o.Skills.Versions(r.Context(), identityOf(r.Context()).tenant, r.PathValue("skill"))
	list := make([]schemas.SkillVersion, len(versions))
	for i, v := range versions {
		list[i] = schemas.SkillVersion{
			Version: v.Version, Description: v.Description, Bytes: v.Bytes, Files: v.Files, SHA256: v.Digest.String(),
			SavedAt: v.SavedAt, SavedBy: v.SavedBy, FromTask: v.FromTask,
		}
	}
	return respondList(w, list, err)
}

func (s *Server) deleteSkill(w http.ResponseWriter, r *http.Request) error {
	version, err := versionOf(r)
	if err != nil {
		return err
	}
	tenant := identityOf(r.Context()).tenant
	if err := s.o.Skills.Remove(r.Context(), tenant, r.PathValue("skill"), version); err != nil {
		return err
	}
	s.announceSkills(r.Context(), tenant)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// announceSkills tells the other processes that a tenant's skills have changed. If that fails, they find out within a
// minute.
func (s *Server) announceSkills(ctx context.Context, tenant string) {
	if err := s.queue.SkillsChanged(tenant); err != nil {
		s.o.Telemetry.Log.WarnContext(ctx, "change of skills not announced", "tenant", tenant, "error", err)
	}
}

// putSkill saves a skill, after a smoke run if it has a program.
func (s *Server) putSkill(w http.ResponseWriter, r *http.Request) error {
	if ct := r.Header.Get("Content-Type"); !isJSON(ct) {
		return badMediaType(ct, "a skill is JSON")
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	var d schemas.SkillDraft
	if err := decodeJSON(body, &d); err != nil {
		return err
	}
	ctx, name := r.Context(), r.PathValue("skill")
	if err := skills.CheckName(name); err != nil {
		return err
	}
	files, err := s.draftFiles(ctx, name, &d)
	if err != nil {
		return err
	}
	k, err := skills.New(name, files)
	if err != nil {
		return err
	}
	id := identityOf(ctx)
	if err := s.o.Skills.Check(ctx, id.tenant, k, d.Base); err != nil {
		return err
	}
	smoke, err := s.smokeRun(ctx, k, d)
	if err != nil {
		return err
	}
	v, err := s.o.Skills.Save(ctx, id.tenant, k,
		skills.Version{SavedAt: time.Now().UTC(), SavedBy: id.name, FromTask: d.Task}, d.Base)
	if err != nil {
		return err
	}
	s.announceSkills(ctx, id.tenant)
	saved := describeSkill(skills.Stored{Skill: k, Version: v, Scope: skills.OfTenant})
	return respond(w, schemas.SavedSkill{Skill: saved, Smoke: smoke}, nil)
}

// draftFiles returns the files of the skill that a draft describes. If the draft names a task, draftFiles completes it
// with the task's program, description, workspace and task pool.
func (s *Server) draftFiles(ctx context.Context, name string, d *schemas.SkillDraft) (map[string][]byte, error) {
	given := 0
	for _, has := range []bool{d.Code != "", d.Task != "", len(d.Content) > 0} {
		if has {
			given++
		}
	}
	switch {
	case given != 1:
		e := apierror.New(errcode.BadData, "a skill is saved from exactly one of code, task and content")
		e.Hint = `{"description": "Doubles a number.", "code": "def run(x): return 2 * x", "inputs": {"x": 4}}`
		return nil, e
	case len(d.Content) > 0 && d.Description+d.Instructions != "" || len(d.Content) > 0 && len(d.Metadata) > 0:
		e := apierror.New(errcode.BadData, "content excludes description, instructions and metadata")
		e.Hint = "write them in its SKILL.md"
		e.Path = "/content"
		return nil, e
	case len(d.Content) > 0:
		return filesOf(d.Content)
	}
	if d.Task != "" {
		rec, err := s.record(ctx, d.Task)
		if err != nil {
			return nil, err
		}
		if rec.Status != schemas.Succeeded || rec.Result == nil || rec.Result.Code == "" {
			e := apierror.New(errcode.BadData, "task %s (%s) has no program that succeeded",
				rec.TaskID, rec.Status)
			e.Path = "/task"
			return nil, e
		}
		d.Code = rec.Result.Code
		d.Description = cmp.Or(d.Description, rec.Description)
		d.Workspace = cmp.Or(d.Workspace, rec.Workspace)
		d.Pool = cmp.Or(d.Pool, rec.Pool)
	}
	return skills.FromProgram(skills.Draft{
		Name: name, Description: d.Description, Code: d.Code, Instructions: d.Instructions, Metadata: d.Metadata,
	})
}

// filesOf decodes the files of a draft.
func filesOf(content []schemas.File) (map[string][]byte, error) {
	files := make(map[string][]byte, len(content))
	for i, f := range content {
		bad := func(why string) error {
			e := apierror.New(errcode.BadData, "the file %s %s", text.Truncate(text.Printable(f.Name), 100), why)
			e.Path = fmt.Sprintf("/content/%d", i)
			return e
		}
		if _, twice := files[f.Name]; twice {
			return nil, bad("is listed twice")
		}
		switch {
		case (f.Text == nil) == (f.Base64 == nil):
			return nil, bad("must have exactly one of text and base64")
		case f.Text != nil:
			files[f.Name] = []byte(*f.Text)
		default:
			data, err := base64.StdEncoding.DecodeString(*f.Base64)
			if err != nil {
				return nil, bad("is not valid base64")
			}
			files[f.Name] = data
		}
	}
	return files, nil
}
