package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) skillsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "skills",
		Short: "Save programs that worked, and use them again",
		Long: "List the skills: saved programs and instructions, in the public Agent Skills format. A\n" +
			"program imports one with `from skills.double_number import run`; `codefleet run --skill\n" +
			"double-number --inputs '{\"x\": 15}'` runs it as a task.",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			return a.listSkills(ctx, c)
		}),
	}
	return listGroup(c,
		a.skillsShowCommand(), a.skillsSaveCommand(), a.skillsImportCommand(), a.skillsExportCommand(),
		a.skillsVersionsCommand(), a.skillsRemoveCommand(), a.skillsCheckCommand(),
	)
}

func (a *app) listSkills(ctx context.Context, c *client.Client) error {
	all, err := c.Skills(ctx)
	if err != nil {
		return err
	}
	return listOr(a, all, "no skills: `codefleet skills save NAME --file PROGRAM.py --description TEXT` saves one",
		"SKILL\tVERSION\tSCOPE\tCALL\tDESCRIPTION", func(k client.Skill) []any {
			call := cmp.Or(k.Signature, "–")
			return []any{k.Name, versionText(k.Version), k.Scope, call, firstSentence(k.Description)}
		})
}

func versionText(version int) string {
	if version == 0 {
		return "–"
	}
	return strconv.Itoa(version)
}

func (a *app) skillsShowCommand() *cobra.Command {
	var version int
	var code bool
	c := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show a skill: its description, instructions and files, or its program",
		Example: "  codefleet skills show double-number\n  codefleet skills show double-number --code",
		Args:    cobra.ExactArgs(1),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			k, err := c.Skill(ctx, skillName(args[0]), version)
			if err != nil {
				return err
			}
			if code && a.output == "text" {
				_, err := io.WriteString(a.stdout, k.Code)
				return err
			}
			return a.print(k, func(w io.Writer) { showSkill(w, k) })
		}),
	}
	skillVersionFlag(c, &version, "show this version; default the newest")
	c.Flags().BoolVar(&code, "code", false, "print only the program")
	a.completeSkills(c)
	return c
}

func showSkill(w io.Writer, k client.SkillContent) {
	row(w, "skill", k.Name)
	row(w, "description", k.Description)
	row(w, "scope", k.Scope)
	if k.Version > 0 {
		row(w, "version", k.Version)
		row(w, "saved", k.SavedAt.Local().Format(time.DateTime))
	}
	if k.Runnable {
		row(w, "import", k.Import)
		row(w, "call", k.Signature)
	}
	if k.License != "" {
		row(w, "license", k.License)
	}
	if k.Compatibility != "" {
		row(w, "compatibility", k.Compatibility)
	}
	for _, f := range k.Content {
		row(w, "file", f.Name)
	}
	fmt.Fprintln(w)
	for line := range strings.Lines(k.Instructions) {
		fmt.Fprintln(w, printable(strings.TrimRight(line, "\n")))
	}
}

// saveFlags are the flags of save and import.
type saveFlags struct {
	inputs, workspace, pool string
	base                    int
	replace                 bool
}

func (f *saveFlags) declare(a *app, c *cobra.Command) {
	s := c.Flags()
	s.StringVar(&f.inputs, "inputs", "", "`JSON`, or @FILE, with the arguments of the smoke run")
	s.IntVar(&f.base, "base", 0, "replace this `VERSION`; fail if it is not the newest")
	requirePositive(c, "base")
	s.BoolVar(&f.replace, "replace", false, "replace the skill if it exists, whatever its version")
	s.StringVar(&f.pool, "pool", "", "`NAME` of the task pool of the smoke run")
	a.workspaceFlag(c, &f.workspace)
	c.MarkFlagsMutuallyExclusive("base", "replace")
}

// saveSkill saves a skill as the flags say. With --replace, it replaces the newest version.
func (a *app) saveSkill(
	ctx context.Context, c *client.Client, name string, d client.SkillDraft, f saveFlags,
) (client.SavedSkill, error) {
	var err error
	if f.inputs != "" {
		if d.Inputs, err = readJSON("--inputs", f.inputs, nil); err != nil {
			return client.SavedSkill{}, err
		}
	}
	d.Workspace, d.Pool, d.Base = f.workspace, f.pool, f.base
	if f.replace {
		known, err := c.Skill(ctx, name, 0)
		if e, ok := errors.AsType[*client.APIError](err); err != nil && (!ok || e.Code != errcode.UnknownSkill) {
			return client.SavedSkill{}, err
		}
		d.Base = known.Version
	}
	stopNotes := a.noteWaits(ctx, c, a.progress(), func(ctx context.Context) []client.Record {
		return smokeTasks(ctx, c)
	})
	saved, err := c.SaveSkill(ctx, name, d)
	stopNotes()
	if e, ok := errors.AsType[*client.APIError](err); ok && e.Code == errcode.SkillFailed {
		return saved, &failure{
			code: errcode.ExitFailed, message: e.Message + "\n" + e.Cause, hint: e.Hint, errorCode: e.Code,
		}
	}
	return saved, err
}

// smokeTasks returns the unfinished tasks of smoke runs.
func smokeTasks(ctx context.Context, c *client.Client) []client.Record {
	active, err := c.List(ctx, client.ListOptions{
		Status: []client.Status{client.Queued, client.Running, client.RetryWait},
	})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(active, func(rec client.Record) bool { return rec.Source != skills.TaskSource })
}

func (a *app) printSaved(saved []client.SavedSkill) error {
	if a.output == "json" {
		if len(saved) == 1 {
			return a.print(saved[0], nil)
		}
		return a.print(orEmpty(saved), nil)
	}
	for _, k := range saved {
		fmt.Fprintf(a.stdout, "saved %s, version %d%s\n", k.Name, k.Version, smokeText(k.Smoke))
	}
	return nil
}

func smokeText(s *client.SmokeRun) string {
	switch {
	case s == nil:
		return " (it has no program)"
	case !s.Called:
		return "; the smoke run imported it (pass --inputs to call it)"
	}
	return "; the smoke run returned " + printable(cmp.Or(truncated(string(s.Result), 200), "null"))
}

func truncated(s string, limit int) string {
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

func (a *app) skillsSaveCommand() *cobra.Command {
	var f saveFlags
	var d client.SkillDraft
	var file string
	c := &cobra.Command{
		Use:   "save NAME (--file FILE|- | --code TEXT | --task ID)",
		Short: "Save a program, or the program of a task that succeeded, as a skill",
		Long: "Save a program as a skill. Other programs import its function `run`, or the function with the\n" +
			"skill's name; a program without such a function runs as a whole, with its arguments in the\n" +
			"variable `inputs`. Before it is saved, the fleet imports it in a box, and calls it if it can,\n" +
			"without changing a workspace.",
		Example: "  codefleet skills save double-number --file double_number.py \\\n" +
			"    --description 'Doubles a number.' --inputs '{\"x\": 15}'\n" +
			"  codefleet skills save weekly-report --task ID --description 'Writes the weekly report.'",
		Args: cobra.ExactArgs(1),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			if file != "" {
				var err error
				if d.Code, err = readProgram("--file "+file, file, a.stdin); err != nil {
					return err
				}
			}
			saved, err := a.saveSkill(ctx, c, skillName(args[0]), d, f)
			if err != nil {
				return err
			}
			return a.printSaved([]client.SavedSkill{saved})
		}),
	}
	s := c.Flags()
	s.StringVarP(&file, "file", "f", "", "`FILE` with the program, or - for standard input")
	s.StringVar(&d.Code, "code", "", "`TEXT` of the program")
	s.StringVar(&d.Task, "task", "", "`ID` of a task that succeeded")
	s.StringVarP(&d.Description, "description", "d", "", "`TEXT` that says what the skill does and when to use it")
	f.declare(a, c)
	c.MarkFlagsMutuallyExclusive("file", "code", "task")
	c.MarkFlagsOneRequired("file", "code", "task")
	return c
}

func (a *app) skillsImportCommand() *cobra.Command {
	var f saveFlags
	c := &cobra.Command{
		Use:   "import PATH...",
		Short: "Save skills from directories in the Agent Skills format, or from files NAME.py",
		Long: "Save skills from directories with a SKILL.md, or from files NAME.py, which NAME.md may describe.\n" +
			"A symbolic link in a directory is an error.",
		Example: "  codefleet skills import ./pdf-forms\n  codefleet skills import skills/*.py --replace",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			all, err := readSkills(args)
			if err != nil {
				return err
			}
			var saved []client.SavedSkill
			for _, k := range all {
				one, err := a.saveSkill(ctx, c, k.Name, client.SkillDraft{Content: schemas.FilesOf(k.Files)}, f)
				if err != nil {
					return errors.Join(a.printSaved(saved), err)
				}
				saved = append(saved, one)
			}
			return a.printSaved(saved)
		}),
	}
	f.declare(a, c)
	return c
}

// readSkills reads skills from paths. The error of an invalid one lists everything that is wrong with it.
func readSkills(paths []string) (all []skills.Skill, err error) {
	for _, path := range paths {
		k, err := skills.Read(path)
		if invalid, ok := errors.AsType[*skills.InvalidError](err); ok {
			return nil, usage("%s: not a valid skill:\n  %s", path, strings.Join(invalid.Problems, "\n  "))
		}
		if err != nil {
			if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == path {
				err = reasonOf(err)
			}
			return nil, usage("%s: %v", path, err)
		}
		all = append(all, k)
	}
	return all, nil
}

func (a *app) skillsCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check PATH...",
		Short:   "Check directories and files NAME.py against the rules of skills, without a fleet",
		Example: "  codefleet skills check ./pdf-forms",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.do(func(_ context.Context, args []string) error {
			all, err := readSkills(args)
			if err != nil {
				return err
			}
			type checked struct {
				Name        string `json:"name"`
				Description string `json:"description"`
				Signature   string `json:"signature,omitempty"`
			}
			list := mapSlice(all, func(k skills.Skill) checked { return checked{k.Name, k.Description, k.Signature()} })
			return a.print(list, func(w io.Writer) {
				for _, k := range list {
					fmt.Fprintf(w, "valid: %s\n", printable(k.Name))
				}
			})
		}),
	}
}

func (a *app) skillsExportCommand() *cobra.Command {
	var version int
	c := &cobra.Command{
		Use:   "export NAME [DIR]",
		Short: "Write a skill as a directory in the Agent Skills format",
		Long: "Write the files of a skill to DIR/NAME, which must not exist. DIR is the working directory by\n" +
			"default.",
		Example: "  codefleet skills export double-number .agents/skills",
		Args:    cobra.RangeArgs(1, 2),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			k, err := c.Skill(ctx, skillName(args[0]), version)
			if err != nil {
				return err
			}
			dir := filepath.Join(cmp.Or(arg(args, 1), "."), k.Name)
			if err := writeSkill(dir, k); errors.Is(err, fs.ErrExist) {
				return usage("%s exists", dir).try("another DIR, or remove it first")
			} else if isPathError(err) {
				return explainFileError(err)
			} else if err != nil {
				return &failure{code: errcode.ExitFailed, message: "write " + dir, err: err}
			}
			out := struct {
				Dir   string `json:"dir"`
				Files int    `json:"files"`
			}{dir, len(k.Content)}
			return a.print(out, func(w io.Writer) {
				fmt.Fprintf(w, "wrote %s: %s\n", dir, text.Count(len(k.Content), "file"))
			})
		}),
	}
	skillVersionFlag(c, &version, "export this version; default the newest")
	a.completeSkills(c)
	return c
}

// writeSkill writes the files of a skill into a new directory, and no file outside of it. It creates missing parent
// directories. After an error, it removes the new directory.
func writeSkill(dir string, k client.SkillContent) (err error) {
	if err := skills.CheckName(k.Name); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range k.Content {
		data := []byte(nil)
		if f.Text != nil {
			data = []byte(*f.Text)
		} else if f.Base64 != nil {
			if data, err = base64.StdEncoding.DecodeString(*f.Base64); err != nil {
				return err
			}
		}
		name := filepath.FromSlash(f.Name)
		if err := errors.Join(root.MkdirAll(filepath.Dir(name), 0o755), root.WriteFile(name, data, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) skillsVersionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "versions NAME", Short: "List the kept versions of a skill, the newest first", Args: cobra.ExactArgs(1),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			versions, err := c.SkillVersions(ctx, skillName(args[0]))
			if err != nil {
				return err
			}
			return list(a, versions, "VERSION\tSAVED\tBY\tTASK\tBYTES\tDESCRIPTION", func(v client.SkillVersion) []any {
				return []any{
					v.Version, v.SavedAt.Local().Format(time.DateTime), cmp.Or(v.SavedBy, "–"),
					cmp.Or(v.FromTask, "–"), v.Bytes, firstSentence(v.Description),
				}
			})
		}),
	}
	a.completeSkills(c)
	return c
}

func (a *app) skillsRemoveCommand() *cobra.Command {
	var version int
	c := &cobra.Command{
		Use: "rm NAME", Short: "Remove a skill with all its versions", Args: cobra.ExactArgs(1),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			name := skillName(args[0])
			if err := c.RemoveSkill(ctx, name, version); err != nil {
				return err
			}
			out := struct {
				Removed string `json:"removed"`
			}{name}
			return a.print(out, func(w io.Writer) { fmt.Fprintf(w, "removed %s\n", name) })
		}),
	}
	skillVersionFlag(c, &version, "fail unless this is the newest version")
	a.completeSkills(c)
	return c
}

func skillVersionFlag(c *cobra.Command, version *int, text string) {
	c.Flags().IntVar(version, "version", 0, "`NUMBER`: "+text)
	requirePositive(c, "version")
}

// skillName returns the name of a skill, which may be given as the name of its module: double_number for double-number.
// Any other argument is returned as it is, for an error that quotes it.
func skillName(arg string) string {
	if name := skills.NameOf(arg); skills.CheckName(name) == nil {
		return name
	}
	return arg
}

// completeSkills completes the name of a skill.
func (a *app) completeSkills(c *cobra.Command) {
	c.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		if len(args) > 0 {
			return nil
		}
		return a.skillCompletions(ctx, c)
	})
}

func (a *app) skillCompletions(ctx context.Context, c *client.Client) []cobra.Completion {
	all, err := c.Skills(ctx)
	if err != nil {
		return nil
	}
	return mapSlice(all, func(k client.Skill) cobra.Completion {
		return cobra.CompletionWithDesc(k.Name, firstSentence(k.Description))
	})
}
