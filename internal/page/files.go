package page

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

func getWorkspaces(q *request) error {
	list, err := q.c.Workspaces(q.ctx)
	if err != nil {
		return err
	}
	return q.show("workspaces", "Workspaces", list)
}

// maxEntries is how many entries of a directory a page lists.
const maxEntries = 1000

// dirEntry is a file or a directory in a directory.
type dirEntry struct {
	Name, Path string
	Dir        bool
	Bytes      int64
	Kind       string
}

// crumb links to a directory on the path to the shown directory. The last crumb is the shown directory itself.
type crumb struct{ Name, Path string }

const (
	maxDir    = 4096 // bytes of a path in a workspace
	maxCrumbs = 32
)

var errLongPath = &pageError{http.StatusBadRequest, "The path is too long.", "It has at most 4096 bytes."}

// crumbsOf returns the last directories on the path to dir, at most maxCrumbs of them, and dir itself as the last one.
func crumbsOf(dir string) (list []crumb) {
	for ; dir != "" && len(list) < maxCrumbs; dir = dir[:max(strings.LastIndexByte(dir, '/'), 0)] {
		if name := dir[strings.LastIndexByte(dir, '/')+1:]; name != "" {
			list = append(list, crumb{name, dir})
		}
	}
	slices.Reverse(list)
	return list
}

// getWorkspace lists a directory of a version of a workspace.
func getWorkspace(q *request) error {
	name, dir := q.r.PathValue("name"), strings.Trim(q.r.URL.Query().Get("dir"), "/")
	version := q.r.URL.Query().Get("at")
	if len(dir) > maxDir {
		return errLongPath
	}
	files, generation, err := q.c.Workspace(name).Files(q.ctx, version, dir)
	if err != nil {
		return err
	}
	if version != "" {
		version = strconv.FormatInt(generation, 10) // every link contains it, and a pin's name may be long
	}
	data := struct {
		Name, Dir, At string
		Generation    int64
		Entries       []dirEntry
		Crumbs        []crumb
		More          int
	}{Name: name, Dir: dir, At: version, Generation: generation, Crumbs: crumbsOf(dir)}
	data.Entries = entriesOf(files, dir)
	if len(data.Entries) > maxEntries {
		data.More = len(data.Entries) - maxEntries
		data.Entries = data.Entries[:maxEntries]
	}
	return q.show("workspace", "Workspace "+name, data)
}

// entriesOf returns what is directly in dir, the directories first.
func entriesOf(files []client.WorkspaceFile, dir string) []dirEntry {
	prefix := ""
	if dir != "" {
		prefix = dir + "/"
	}
	byName := map[string]dirEntry{}
	for _, f := range files {
		rest, ok := strings.CutPrefix(f.Path, prefix)
		if !ok || rest == "" {
			continue
		}
		name, _, below := strings.Cut(rest, "/")
		e := dirEntry{Name: name, Path: prefix + name, Dir: below || f.Kind == "dir", Kind: f.Kind}
		if !below {
			e.Bytes = f.Bytes
		}
		if have, ok := byName[name]; !ok || e.Dir && !have.Dir {
			byName[name] = e
		}
	}
	list := make([]dirEntry, 0, len(byName))
	for _, e := range byName {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b dirEntry) int {
		if a.Dir != b.Dir {
			return map[bool]int{true: -1, false: 1}[a.Dir]
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return list
}

// getFile shows a file of a workspace as text or as a picture. With raw it sends the file.
func getFile(q *request) error {
	name, file := q.r.PathValue("name"), q.r.PathValue("path")
	version := q.r.URL.Query().Get("at")
	content, err := q.c.Workspace(name).Open(q.ctx, version, file, 0)
	if err != nil {
		return err
	}
	if q.r.URL.Query().Has("raw") {
		return q.serveContent(file, content)
	}
	defer content.Close()
	text, err := readText(content)
	if err != nil {
		return err
	}
	picture := slices.ContainsFunc([]string{".png", ".jpg", ".jpeg", ".gif", ".webp"}, func(suffix string) bool {
		return strings.HasSuffix(strings.ToLower(file), suffix)
	})
	return q.show("file", file, struct {
		Name, Path, At string
		Picture        bool
		textFile
	}{name, file, version, picture && !text.Shown, text})
}

// getHistory lists the commits of a workspace.
func getHistory(q *request) error {
	name := q.r.PathValue("name")
	commits, err := q.c.Workspace(name).Log(q.ctx, listLimit)
	if err != nil {
		return err
	}
	pins, err := q.c.Workspace(name).Pins(q.ctx)
	if err != nil {
		return err
	}
	return q.show("history", "History of "+name, struct {
		Name    string
		Commits []client.Commit
		Pins    []client.Pin
		More    bool
	}{name, commits, pins, len(commits) == listLimit})
}

// postRestore commits an earlier version again.
func postRestore(q *request) (next, done string, err error) {
	name := q.r.PathValue("name")
	c, err := q.c.Workspace(name).Restore(q.ctx, q.form.Get("generation"), "restored on the page")
	done = fmt.Sprintf("Generation %s is restored, as generation %d.", q.form.Get("generation"), c.Generation)
	if c.NoChange {
		done = "The newest version is equal to that one: nothing has changed."
	}
	return path("workspaces", name, "history"), done, err
}

// maxDiffs is how many changed files a page compares. It lists at most maxEntries.
const maxDiffs = 50

// change is a changed path, with the lines that differ if it is text.
type change struct {
	client.PathChange
	Lines []diffLine
	Why   string // why the lines are not shown
}

// diffLine is a line of a unified diff. Kind is "+", "-", "@" or empty.
type diffLine struct{ Kind, Text string }

// getDiff shows what differs between two versions of a workspace.
func getDiff(q *request) error {
	name := q.r.PathValue("name")
	from, to := q.r.URL.Query().Get("from"), q.r.URL.Query().Get("to")
	ws := q.c.Workspace(name)
	changes, known, err := changesOf(q, ws, from, to)
	if err != nil {
		return err
	}
	data := struct {
		Name, From, To string
		Known          bool // whether the version From is kept
		Changes        []change
		More           int
	}{Name: name, From: from, To: to, Known: known, More: max(0, len(changes)-maxEntries)}
	for i, c := range changes[:min(len(changes), maxEntries)] {
		shown := change{PathChange: c}
		switch {
		case i >= maxDiffs:
			shown.Why = "There are too many changes to show each."
		case c.Bytes > maxText:
			shown.Why = "The file is too large to show."
		default:
			if shown.Lines, shown.Why, err = compare(q, ws, c, from, to); err != nil {
				return err
			}
		}
		data.Changes = append(data.Changes, shown)
	}
	return q.show("diff", "Changes of "+name, data)
}

// changesOf returns the paths that differ between two versions. known reports whether the version from is kept: if not,
// for example because the version to is the first one, all paths of to are returned as added.
func changesOf(q *request, ws *client.Workspace, from, to string) (changes []client.PathChange, known bool, err error) {
	if from != "0" {
		if changes, err = ws.Diff(q.ctx, from, to); !isCode(err, errcode.UnknownVersion) {
			return changes, true, err
		}
	}
	files, _, err := ws.Files(q.ctx, to, "")
	for _, f := range files {
		changes = append(changes, client.PathChange{Path: f.Path, Op: "added", Bytes: f.Bytes})
	}
	return changes, false, err
}

// compare returns the lines of a file that differ between two versions, or why they are not shown.
func compare(
	q *request, ws *client.Workspace, c client.PathChange, from, to string,
) (lines []diffLine, why string, err error) {
	var texts [2]textFile
	for i, version := range []string{from, to} {
		if i == 0 && c.Op == "added" || i == 1 && c.Op == "removed" {
			continue
		}
		content, err := ws.Open(q.ctx, version, c.Path, 0)
		if refused, ok := errors.AsType[*client.APIError](err); ok {
			switch refused.Code {
			case errcode.UnknownFile:
				return nil, "It is a directory or a link.", nil
			case errcode.BadPath: // a program may give a file any name
				return nil, "The HTTP interface cannot read a file with this name.", nil
			}
		}
		if err != nil {
			return nil, "", err
		}
		texts[i], err = readText(content)
		content.Close()
		if err != nil {
			return nil, "", err
		}
		if !texts[i].Shown {
			return nil, texts[i].Why, nil
		}
	}
	out := string(diff.Diff("a", []byte(texts[0].Text), "b", []byte(texts[1].Text)))
	for i, line := range strings.Split(strings.TrimSuffix(out, "\n"), "\n") {
		if i < 3 || line == "" { // the header
			continue
		}
		kind := ""
		if strings.ContainsAny(line[:1], "+-@") {
			kind = line[:1]
		}
		lines = append(lines, diffLine{kind, line})
	}
	return lines, "", nil
}

func getSessions(q *request) error {
	list, err := q.c.Sessions(q.ctx, listLimit)
	if err != nil {
		return err
	}
	return q.show("sessions", "Sessions", list)
}

func getSession(q *request) error {
	s, err := q.c.Session(q.ctx, q.r.PathValue("name"), listLimit)
	if err != nil {
		return err
	}
	return q.show("session", "Session "+s.SessionID, s)
}

// postResume makes a checkpoint of a session its newest one.
func postResume(q *request) (next, done string, err error) {
	name := q.r.PathValue("name")
	id, err := strconv.ParseUint(q.form.Get("checkpoint"), 10, 64)
	if err != nil {
		return "", "", &pageError{http.StatusBadRequest, "The form names no checkpoint.", "Load the page again."}
	}
	_, err = q.c.ResumeSession(q.ctx, name, id)
	return path("sessions", name), "The session continues from this checkpoint.", err
}

func getSkills(q *request) error {
	list, err := q.c.Skills(q.ctx)
	if err != nil {
		return err
	}
	return q.show("skills", "Skills", list)
}

func getSkill(q *request) error {
	name := q.r.PathValue("name")
	version, _ := strconv.Atoi(q.r.URL.Query().Get("version")) // 0 selects the newest
	s, err := q.c.Skill(q.ctx, name, version)
	if err != nil {
		return err
	}
	versions, err := q.c.SkillVersions(q.ctx, name)
	if err != nil && !isCode(err, errcode.UnknownSkill) { // a skill of the fleet has no versions
		return err
	}
	return q.show("skill", "Skill "+name, struct {
		client.SkillContent
		Versions []client.SkillVersion
	}{s, versions})
}

// getTools lists the catalogue, or searches it as tasks do, with the reasons for the ranks.
func getTools(q *request) error {
	text := strings.TrimSpace(q.r.URL.Query().Get("q"))
	data := struct {
		Query  string
		List   client.ToolList
		Search *client.ToolSearch
		More   int
	}{Query: text}
	var err error
	if text != "" {
		var found client.ToolSearch
		found, err = q.c.SearchTools(q.ctx, client.SearchToolsOptions{Limit: 20, Explain: true}, text)
		data.Search = &found
	} else {
		data.List, err = q.c.Tools(q.ctx, client.ToolsOptions{})
		if n := len(data.List.Tools); n > maxEntries {
			data.List.Tools, data.More = data.List.Tools[:maxEntries], n-maxEntries
		}
	}
	if err != nil {
		return err
	}
	return q.show("tools", "Tools", data)
}

func getTool(q *request) error {
	t, err := q.c.ReadTool(q.ctx, q.r.PathValue("server"), q.r.PathValue("tool"))
	if err != nil {
		return err
	}
	return q.show("tool", t.ID, t)
}
