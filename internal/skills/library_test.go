package skills_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/state/mem"
)

func library(bucket *mem.Objects, dir string) *skills.Library {
	return skills.NewLibrary(skills.Options{Bucket: bucket, Dir: dir, Log: slog.New(slog.DiscardHandler)})
}

// program returns a skill with a program that returns a number.
func program(t *testing.T, name string, value int) skills.Skill {
	t.Helper()
	files, err := skills.FromProgram(skills.Draft{
		Name: name, Description: fmt.Sprintf("Returns: %d", value),
		Code: fmt.Sprintf("def run():\n    return %d\n", value),
	})
	if err != nil {
		t.Fatal(err)
	}
	k, err := skills.New(name, files)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func namesOf(t *testing.T, l *skills.Library, tenant string) string {
	t.Helper()
	set, err := l.Of(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	if set == nil {
		return ""
	}
	var out []string
	for _, k := range set.Skills {
		out = append(out, fmt.Sprintf("%s@%d", k.Name, k.Version.Version))
	}
	return strings.Join(out, " ")
}

func save(t *testing.T, l *skills.Library, k skills.Skill, base int) int {
	t.Helper()
	v, err := l.Save(t.Context(), "acme", k, skills.Version{SavedBy: "ann"}, base)
	if err != nil {
		t.Fatal(err)
	}
	return v.Version
}

func TestVersions(t *testing.T) {
	bucket := mem.New()
	l := library(bucket, "")
	if got := namesOf(t, l, "acme"); got != "" {
		t.Errorf("skills of a new tenant = %s, want none", got)
	}
	save(t, l, program(t, "one", 1), 0)
	if again := save(t, l, program(t, "one", 1), 0); again != 1 {
		t.Errorf("a repeated save is version %d, want 1", again)
	}
	save(t, l, program(t, "one", 2), 1)
	save(t, l, program(t, "two", 2), 0)
	if got := namesOf(t, l, "acme"); got != "one@2 two@1" {
		t.Errorf("skills = %s, want one@2 two@1", got)
	}
	if got := namesOf(t, l, "other"); got != "" {
		t.Errorf("skills of another tenant = %s, want none", got)
	}
	first, err := l.Get(t.Context(), "acme", "one", 1)
	if err != nil || !strings.Contains(string(first.Files[skills.Program]), "return 1") {
		t.Errorf("version 1 = %q, %v, want the first program", first.Files[skills.Program], err)
	}
	for want, call := range map[string]func() error{
		"the name is taken: skill one exists, at version 2": func() error {
			_, err := l.Save(t.Context(), "acme", program(t, "one", 3), skills.Version{}, 0)
			return err
		},
		"skill one is at version 2, but the change builds on version 1": func() error {
			_, err := l.Save(t.Context(), "acme", program(t, "one", 3), skills.Version{}, 1)
			return err
		},
		"skill none does not exist, but the change builds on version 4": func() error {
			return l.Check(t.Context(), "acme", program(t, "none", 1), 4)
		},
		"no such skill: one": func() error { _, err := l.Get(t.Context(), "other", "one", 0); return err },
		"no such skill: ons (did you mean one?)": func() error {
			_, err := l.Get(t.Context(), "acme", "ons", 0)
			return err
		},
		"one has no version 9": func() error { _, err := l.Get(t.Context(), "acme", "one", 9); return err },
		"skill one is at version 2, but the change builds on version 7": func() error {
			return l.Remove(t.Context(), "acme", "one", 7)
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
	if err := l.Remove(t.Context(), "acme", "one", 2); err != nil {
		t.Fatal(err)
	}
	if v := save(t, l, program(t, "one", 4), 0); v != 3 {
		t.Errorf("a skill that is saved again after its removal has version %d, want 3", v)
	}
	if err := l.Check(t.Context(), "acme", program(t, "one", 4), 0); err != nil {
		t.Errorf("Check of a repeated save = %v, want nil", err)
	}
	if v := save(t, l, program(t, "one", 4), 0); v != 3 {
		t.Errorf("a repeated save after the removal is version %d, want 3", v)
	}
	for i := range 30 {
		save(t, l, program(t, "two", 100+i), 1+i)
	}
	versions, err := l.Versions(t.Context(), "acme", "two")
	if err != nil || len(versions) != 20 || versions[0].Version != 31 {
		t.Errorf("Versions = %d, the newest %+v, %v; want 20, the newest 31", len(versions), versions[:1], err)
	}
	objects := 0
	for _, err := range bucket.List(t.Context(), "_skills/acme/", "") {
		if err != nil {
			t.Fatal(err)
		}
		objects++
	}
	if objects != 22 {
		t.Errorf("%d objects are stored, want the index, and 1 + 20 versions", objects)
	}
}

// TestConcurrentSaves saves the same skill, and other ones, in many processes at once.
func TestConcurrentSaves(t *testing.T) {
	bucket := mem.New()
	save(t, library(bucket, ""), program(t, "shared", 0), 0)
	const n = 8
	var saving sync.WaitGroup
	var mu sync.Mutex
	won, conflicts := 0, 0
	for i := range n {
		saving.Go(func() {
			l := library(bucket, "")
			own := program(t, fmt.Sprintf("own-%c", 'a'+i), i)
			_, err := l.Save(t.Context(), "acme", own, skills.Version{}, 0)
			if err != nil {
				t.Errorf("Save of another skill = %v, want nil", err)
			}
			_, err = l.Save(t.Context(), "acme", program(t, "shared", i+1), skills.Version{}, 1)
			conflict, ok := errors.AsType[*skills.VersionError](err)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case ok && conflict.Base == 1 && conflict.Current == 2:
				conflicts++
			default:
				t.Errorf("Save = %v, want nil or a conflict of 1 with 2", err)
			}
		})
	}
	saving.Wait()
	if won != 1 || conflicts != n-1 {
		t.Errorf("%d saves succeeded and %d conflicted, want 1 and %d", won, conflicts, n-1)
	}
	if got := strings.Fields(namesOf(t, library(bucket, ""), "acme")); len(got) != n+1 || got[n] != "shared@2" {
		t.Errorf("skills = %v, want %d and shared@2", got, n)
	}
}

// TestSaveDuringRemove saves a skill with the same files while another process is removing it, and reads the skills
// while two are removed.
func TestSaveDuringRemove(t *testing.T) {
	bucket := mem.New()
	l := library(bucket, "")
	save(t, l, program(t, "one", 1), 0)
	save(t, l, program(t, "two", 2), 0)
	beforeNext := func(op string, fn func()) { // calls fn before the next operation op on an object other than HEAD
		var once sync.Once
		bucket.SetFault(func(c mem.Call) mem.Fault {
			if c.Op == op && !strings.Contains(c.Key, "HEAD") {
				once.Do(fn)
			}
			return mem.OK
		})
	}
	beforeNext("delete", func() {
		if v := save(t, library(bucket, ""), program(t, "one", 1), 0); v != 2 {
			t.Errorf("a save after the removal is version %d, want 2", v)
		}
	})
	if err := l.Remove(t.Context(), "acme", "one", 0); err != nil {
		t.Fatal(err)
	}
	if got := namesOf(t, library(bucket, ""), "acme"); got != "one@2 two@1" {
		t.Errorf("skills after a save during the removal = %s, want one@2 two@1", got)
	}
	beforeNext("get", func() {
		err := errors.Join(l.Remove(t.Context(), "acme", "one", 0), l.Remove(t.Context(), "acme", "two", 0))
		if err != nil {
			t.Error(err)
		}
	})
	if got := namesOf(t, library(bucket, ""), "acme"); got != "" {
		t.Errorf("skills after a removal during the read = %s, want none", got)
	}
}

// TestOtherProcesses checks when a process sees what another one saved, and how often it asks the object store.
func TestOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		requests := 0
		var mu sync.Mutex
		bucket.SetFault(func(mem.Call) mem.Fault { mu.Lock(); defer mu.Unlock(); requests++; return mem.OK })
		count := func() int { mu.Lock(); defer mu.Unlock(); n := requests; requests = 0; return n }
		here, there := library(bucket, ""), library(bucket, "")
		for range 100 {
			namesOf(t, here, "acme")
		}
		if n := count(); n != 1 {
			t.Errorf("100 tasks of a tenant without skills sent %d requests, want 1", n)
		}
		save(t, there, program(t, "one", 1), 0)
		if got := namesOf(t, here, "acme"); got != "" {
			t.Errorf("skills before the announcement = %s, want none", got)
		}
		here.Changed("acme")
		if got := namesOf(t, here, "acme"); got != "one@1" {
			t.Errorf("skills after the announcement = %s, want one@1", got)
		}
		before, err := here.Of(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		save(t, there, program(t, "one", 2), 1)
		time.Sleep(2 * time.Minute) //nolint:forbidigo // virtual time, of synctest
		if after, err := here.Of(t.Context(), "acme"); err != nil || after != before {
			t.Errorf("Of = %p, %v, want %p until the read in the background ends", after, err, before)
		}
		synctest.Wait()
		if got := namesOf(t, here, "acme"); got != "one@2" {
			t.Errorf("skills after a missed announcement = %s, want one@2", got)
		}
		bucket.SetFault(func(mem.Call) mem.Fault { return mem.Broken })
		here.Disconnected()
		if got := namesOf(t, here, "acme"); got != "one@2" {
			t.Errorf("skills while the object store fails = %s, want one@2", got)
		}
		if _, err := library(bucket, "").Of(t.Context(), "acme"); err == nil {
			t.Error("Of in a new process while the object store fails = nil, want an error")
		}
	})
}

// TestHangingStore checks that while the object store does not respond to one task of a tenant, the tenant's other
// tasks end with their contexts, and announcements of changes do not block.
func TestHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, free := mem.New(), make(chan struct{})
		bucket.SetFault(func(mem.Call) mem.Fault { <-free; return mem.OK })
		l := library(bucket, "")
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := l.Of(t.Context(), "acme"); err != nil {
				t.Errorf("Of() of the first task = %v, want nil", err)
			}
		})
		synctest.Wait()
		l.Changed("acme")
		l.Disconnected()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Of(ctx, "acme"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Of() of a task that ends = %v, want %v", err, context.DeadlineExceeded)
		}
		close(free)
		first.Wait()
		bucket.Calls()
		_, err := l.Of(t.Context(), "acme")
		if reads := len(bucket.Calls()); err != nil || reads != 1 {
			t.Errorf("Of() after a change during the read = %v after %d reads, want nil after one", err, reads)
		}
	})
}

// Close does not wait for an object store that hangs.
func TestCloseDuringRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		l := library(bucket, "")
		namesOf(t, l, "acme")
		time.Sleep(2 * time.Minute) //nolint:forbidigo // virtual time, of synctest
		bucket.SetFault(func(mem.Call) mem.Fault { return mem.Hang })
		namesOf(t, l, "acme") // begins to read the index in the background
		synctest.Wait()
		began := time.Now()
		l.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("Close() took %v, want none", took)
		}
		bucket.SetFault(nil)
		namesOf(t, l, "acme")
	})
}

func TestFleetSkills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "skills")
		l := library(mem.New(), dir)
		if got := namesOf(t, l, "acme"); got != "" {
			t.Errorf("skills without the directory = %s, want none", got)
		}
		write := func(name, text string) {
			name = filepath.Join(dir, name)
			err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second) //nolint:forbidigo // virtual time, of synctest
		}
		for i, name := range []string{"bad/SKILL.md", "worse/SKILL.md"} { // without any valid skill
			write(name, "no frontmatter")
			if set, err := l.Of(t.Context(), "acme"); err != nil || len(set.Broken) != i+1 {
				t.Errorf("broken skills = %+v, %v; want %d", set, err, i+1)
			}
		}
		for _, name := range []string{"bad", "worse"} {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		write("tax.py", "def run(x):\n    return x * 2\n")
		write("notes/SKILL.md", skillFile("name: notes", "description: Notes."))
		write("broken/SKILL.md", "no frontmatter")
		write("no-skill/readme.txt", "x")
		write("__init__.py", "")
		if got := namesOf(t, l, "acme"); got != "notes@0 tax@0" {
			t.Errorf("skills = %s, want notes@0 tax@0", got)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		linked := library(mem.New(), link)
		if got := namesOf(t, linked, "acme"); got != "notes@0 tax@0" {
			t.Errorf("skills of a link to the directory = %s, want notes@0 tax@0", got)
		}
		write("notes/SKILL.md", skillFile("name: notes", "description: Changed."))
		if k, err := linked.Get(t.Context(), "acme", "notes", 0); err != nil || k.Description != "Changed." {
			t.Errorf("description of a skill that changed behind a link = %q, %v, want Changed.", k.Description, err)
		}
		set, err := l.Of(t.Context(), "other")
		if err != nil || len(set.Broken) != 1 || set.Broken[0].Path != "broken" {
			t.Errorf("broken = %+v, %v, want the directory broken", set.Broken, err)
		}
		_, err = l.Save(t.Context(), "acme", program(t, "tax", 1), skills.Version{}, 0)
		if _, taken := errors.AsType[*skills.TakenError](err); !taken {
			t.Errorf("Save under the name of a fleet's skill = %v, want a *TakenError", err)
		}
		save(t, l, program(t, "mine", 1), 0)
		write("mine.py", "def run():\n    return 'the fleet'\n")
		if got := namesOf(t, l, "acme"); got != "mine@1 notes@0 tax@0" {
			t.Errorf("skills = %s, want the tenant's own mine@1", got)
		}
		if got := namesOf(t, l, "other"); got != "mine@0 notes@0 tax@0" {
			t.Errorf("skills of another tenant = %s, want the fleet's mine@0", got)
		}
		// Of files whose names are the same skill, the first one is used.
		write("Mine.py", "def run():\n    return 'capital'\n")
		write("a-b/SKILL.md", skillFile("name: a-b", "description: Hyphen."))
		write("a_b.py", "def run():\n    return 'underscore'\n")
		if set, err = l.Of(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, b := range set.Broken {
			got[b.Path] = b.Message
		}
		delete(got, "broken")
		want := map[string]string{
			"a_b.py":  "another skill of the directory is named a-b",
			"mine.py": "another skill of the directory is named mine",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("broken (-want +got):\n%s", diff)
		}
	})
}

// TestRoundTrip saves five public skills, and directories in other shapes that the format allows, and reads the same
// files back.
func TestRoundTrip(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*/SKILL.md")
	if err != nil || len(files) != 10 {
		t.Fatalf("testdata has %v, %v; want 10 skills", files, err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		k, err := skills.Read(dir)
		if err != nil {
			t.Errorf("Read(%s) = %v, want nil", dir, err)
			continue
		}
		bucket := mem.New()
		save(t, library(bucket, ""), k, 0)
		got, err := library(bucket, "").Get(t.Context(), "acme", k.Name, 0)
		if d := cmp.Diff(k, got.Skill); err != nil || d != "" {
			t.Errorf("%s: Get = %v (-saved +got):\n%s", dir, err, d)
		}
		want := map[string]string{}
		err = filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				data, readErr := os.ReadFile(name)
				want[strings.TrimPrefix(filepath.ToSlash(name), filepath.ToSlash(dir)+"/")], err = string(data), readErr
			}
			return err
		})
		files := map[string]string{}
		for name, data := range got.Files {
			files[name] = string(data)
		}
		if d := cmp.Diff(want, files); err != nil || d != "" {
			t.Errorf("%s: files = %v (-want +got):\n%s", dir, err, d)
		}
	}
}

// TestFlatSkill reads skills in the older form, whose notes describe them.
func TestFlatSkill(t *testing.T) {
	for notes, want := range map[string]string{
		"# Double\nDoubles a number.":                                 "Doubles a number.",
		"# Double\r\n\r\n## Use\r\nDoubles\r\na number.\r\n\r\nMore.": "Doubles a number.",
		"# Double\n": "The program double.py, as a skill.",
	} {
		name := filepath.Join(t.TempDir(), "double")
		err := errors.Join(os.WriteFile(name+".py", []byte("def run(x):\n    return 2 * x\n"), 0o644),
			os.WriteFile(name+".md", []byte(notes), 0o644))
		if err != nil {
			t.Fatal(err)
		}
		if k, err := skills.Read(name + ".py"); err != nil || k.Description != want {
			t.Errorf("description of a skill with the notes %q = %q, %v, want %q", notes, k.Description, err, want)
		}
	}
}

func TestSymbolicLinks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	file := []byte(skillFile("name: a", "description: x"))
	err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink("/etc/passwd", filepath.Join(dir, "data.txt")),
		os.WriteFile(filepath.Join(dir, "SKILL.md"), file, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := skills.Read(dir); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("Read of a directory with a symbolic link = %v, want an error", err)
	}
}

// TestModule checks how programs are called.
func TestModule(t *testing.T) {
	for code, want := range map[string]struct {
		entry     skills.EntryPoint
		signature string
		init      string
	}{
		"def run(x: int, *, y=2) -> int:\n    return x\n": {
			skills.EntryFunction, "run(x: int, *, y=2) -> int", "import run as run",
		},
		"def my_skill(x):\n    return x\n": {
			skills.EntryFunction, "run(x)", "import my_skill as run",
		},
		"def other(a, b=1):\n    return a\n\nrun = other\n": {
			skills.EntryFunction, "run(a, b=1)", "import run as run",
		},
		"run = lambda x: x\n": {
			skills.EntryFunction, "run(...)", "import run as run",
		},
		"print(inputs)\n": {
			skills.EntryScript, "run(inputs)", "def run(inputs=None, /, **named):",
		},
		"def helper():\n    def run():\n        pass\n\nhelper()\n": {
			skills.EntryScript, "run(inputs)", "def run(inputs=None",
		},
	} {
		files, err := skills.FromProgram(skills.Draft{Name: "my-skill", Description: `A "test": yes`, Code: code})
		if err != nil {
			t.Fatal(err)
		}
		k, err := skills.New("my-skill", files)
		if err != nil {
			t.Fatal(err)
		}
		module := k.Module()
		if k.Entry != want.entry || k.Signature() != want.signature ||
			!strings.Contains(string(module["my_skill/__init__.py"]), want.init) {
			t.Errorf("%q: entry %q, signature %s, __init__.py %s; want %q, %s, %s",
				code, k.Entry, k.Signature(), module["my_skill/__init__.py"], want.entry, want.signature, want.init)
		}
		if got := slices.Sorted(maps.Keys(module)); !slices.Equal(got,
			[]string{"my_skill/SKILL.md", "my_skill/__init__.py", "my_skill/scripts/run.py"}) {
			t.Errorf("files = %v, want SKILL.md, __init__.py and scripts/run.py", got)
		}
		if k.Description != `A "test": yes` {
			t.Errorf("description = %q, want the draft's", k.Description)
		}
	}
}

// TestLostResponses checks that a change whose response is lost is made once, and that the objects of what it replaced
// are removed.
func TestLostResponses(t *testing.T) {
	bucket := mem.New()
	l := library(bucket, "")
	for i := range 30 { // more versions than are kept
		save(t, l, program(t, "one", i), i)
	}
	objects := func() (n int) {
		for info, err := range bucket.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(info.Key, "/HEAD") {
				n++
			}
		}
		return n
	}
	kept := objects()
	lose := func() {
		var once sync.Once
		bucket.SetFault(func(c mem.Call) (f mem.Fault) {
			if strings.HasSuffix(c.Key, "/HEAD") && c.Op == "swap" {
				once.Do(func() { f = mem.LostResponse })
			}
			return f
		})
	}
	lose()
	if v := save(t, l, program(t, "one", 30), 30); v != 31 || objects() != kept {
		t.Errorf("a save is version %d with %d objects in all, want 31 and %d", v, objects(), kept)
	}
	lose()
	if err := l.Remove(t.Context(), "acme", "one", 31); err != nil || objects() != 0 {
		t.Errorf("Remove = %v, which leaves %d objects, want none", err, objects())
	}
}
