package ingest

import (
	"net/http"

	"github.com/codefleet/codefleet/internal/errcode"
)

// workspaceRow returns a route about one workspace. path is the rest of its path.
func (s *Server) workspaceRow(method, path, scope string, h workspaceHandler, id, summary string) route {
	return row(method+" /v1/workspaces/{workspace}"+path, scope, s.workspace(h), id, summary).
		fails(workspaceErrors...)
}

func (s *Server) workspaceRoutes() []route {
	return []route{
		row("GET /v1/workspaces", ScopeRead, s.store(s.getWorkspaces), "listWorkspaces", "List workspaces").
			returns(200, "[]Workspace").
			fails(storeErrors...),
		s.workspaceRow("GET", "", ScopeRead, s.getWorkspace,
			"getWorkspace", "Read generation and size of a workspace").
			returns(200, "Workspace"),
		s.workspaceRow("DELETE", "", ScopeSubmit, s.deleteWorkspace,
			"deleteWorkspace", "Delete a workspace with its history").
			returnsNothing(204),
		s.workspaceRow("GET", "/log", ScopeRead, s.getLog, "listCommits", "List commits, the newest first").
			takes("limit").
			returns(200, "[]Commit").
			fails(errcode.BadParameter),
		s.workspaceRow("GET", "/diff", ScopeRead, s.getDiff,
			"diffWorkspace", "List the paths that differ between two versions").
			takes("from", "to").
			returns(200, "[]PathChange").
			fails(errcode.BadParameter),
		s.workspaceRow("POST", "/restore", ScopeSubmit, s.postRestore,
			"restoreWorkspace", "Commit an earlier version again").
			body("application/json", "RestoreOptions").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter),
		s.workspaceRow("POST", "/fork", ScopeSubmit, s.postFork,
			"forkWorkspace", "Start a workspace from a version of this one").
			body("application/json", "ForkOptions").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter, errcode.WorkspaceExists),
		s.workspaceRow("POST", "/check", ScopeRead, s.postCheck,
			"checkWorkspace", "Verify that all versions can be read").
			body("application/json", "CheckOptions").
			returns(200, "CheckReport").
			fails(errcode.BadParameter),
		s.workspaceRow("POST", "/repair", ScopeSubmit, s.postRepair,
			"repairWorkspace", "Rebuild the newest version from what is intact").
			body("application/json", "RepairOptions").
			returns(200, "RepairReport").
			fails(commitErrors...),
		s.workspaceRow("POST", "/mirror", ScopeSubmit, s.postMirror,
			"mirrorWorkspace", "Bring the mirror to the newest version").
			returns(200, "MirrorReport").
			fails(errcode.NoMirror),
		s.workspaceRow("GET", "/pins", ScopeRead, s.getPins, "listPins", "List pins, the oldest first").
			returns(200, "[]Pin"),
		s.workspaceRow("PUT", "/pins/{pin}", ScopeSubmit, s.putPin, "putPin", "Pin a version").
			body("application/json", "PinOptions").
			returns(200, "Pin").
			fails(errcode.BadParameter),
		s.workspaceRow("DELETE", "/pins/{pin}", ScopeSubmit, s.deletePin, "deletePin", "Remove a pin").
			returnsNothing(204),
	}
}

func (s *Server) fileRoutes() []route {
	return []route{
		s.workspaceRow("GET", "/files", ScopeRead, s.getFiles, "listFiles", "List the paths of a version").
			takes("generation", "dir", "If-None-Match").
			returns(200, "[]File").returnsNothing(304).
			fails(errcode.BadParameter),
		s.workspaceRow("POST", "/files", ScopeSubmit, s.postFiles, "commitFiles", "Commit many changes at once").
			note("Each part with a file name is a file: the part's name is its path, Codefleet-Mode and "+
				"Codefleet-Time its attributes. The part `edits` is a JSON array of other changes: "+
				"`{path, kind: dir|link, mode, target}`, or `{path}` to remove it. With `base`, commits since "+
				"that generation are merged; without, the changes replace what is there.").
			takes("base", "message").
			body("multipart/form-data", "Form").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter, errcode.BadForm, errcode.Busy),
		s.workspaceRow("GET", "/files/{path...}", ScopeRead, s.getFile, "getFile", "Download a file").
			note("Range requests with up to 8 ranges are served.").
			takes("generation", "Range", "If-None-Match").
			returnsMedia(200, "*/*", "Bytes").
			returnsMedia(206, "*/*", "Bytes").returnsNothing(304).returnsNothing(416).
			fails(errcode.BadParameter, errcode.UnknownFile),
		s.workspaceRow("PUT", "/files/{path...}", ScopeSubmit, s.putFile, "putFile", "Write a file and commit it").
			takes("message", "If-Match", "If-None-Match", modeHeader, timeHeader).
			body("*/*", "Bytes").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter, errcode.PreconditionFailed, errcode.Busy),
		s.workspaceRow("DELETE", "/files/{path...}", ScopeSubmit, s.deleteFile,
			"deleteFile", "Remove a file, or a directory with its content").
			takes("If-Match").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter, errcode.PreconditionFailed, errcode.UnknownFile),
		s.workspaceRow("GET", "/archive", ScopeRead, s.getArchive,
			"getArchive", "Download a version as zip or tar").
			takes("generation", "format", "dir").
			returnsMedia(200, "application/zip", "Bytes").returnsMedia(200, "application/x-tar", "Bytes").
			fails(errcode.BadParameter),
		s.workspaceRow("POST", "/archive", ScopeRead, s.postArchive,
			"getArchiveOf", "Download some files of a version as tar").
			body("application/json", "ArchiveOptions").
			returnsMedia(200, "application/x-tar", "Bytes").
			fails(errcode.BadParameter),
	}
}

func (s *Server) stateRoutes() (table []route) {
	for _, v := range []struct{ path, id, document string }{
		{"/v1/state", "DefaultState", "the default state document"},
		{"/v1/state/{file...}", "State", "a state document"},
	} {
		table = append(table,
			row("GET "+v.path, ScopeRead, s.store(s.getState), "get"+v.id, "Read "+v.document).
				note("A YAML document is returned as YAML unless Accept contains json.").
				takes("workspace", "If-None-Match").
				returnsMedia(200, "application/json", "Object").
				returnsMedia(200, "application/yaml", "Text").returnsNothing(304).
				fails(workspaceErrors...).
				fails(errcode.BadStateFile, errcode.UnknownState, errcode.StateDisabled, errcode.TooLarge).
				failsWith(http.StatusConflict, errcode.BadState), // the stored document is damaged
			row("PUT "+v.path, ScopeSubmit, s.store(s.putState), "put"+v.id, "Replace "+v.document).
				takes("workspace", "If-Match", "If-None-Match").
				body("application/json", "Object").body("application/yaml", "Text").
				returns(200, "SavedState").
				fails(workspaceErrors...).fails(commitErrors...).
				fails(errcode.BadParameter, errcode.BadStateFile, errcode.BadState, errcode.StateConflict,
					errcode.StateDisabled))
	}
	return table
}
