package skills

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Read reads a skill from a directory in the format, or from a file NAME.py, which a file NAME.md beside it may
// describe.
func Read(name string) (Skill, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Skill{}, err
	}
	if info.IsDir() {
		return readDir(name)
	}
	if filepath.Ext(name) == ".py" {
		return readFlat(name)
	}
	return Skill{}, invalid("%s is neither a directory with a SKILL.md nor a .py file", name)
}

// readDir reads a skill from a directory in the format. It refuses a directory that contains a symbolic link.
func readDir(dir string) (Skill, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return Skill{}, err
	}
	root, err := os.OpenRoot(absolute + string(filepath.Separator)) // with the separator, it does not wait on a pipe
	if err != nil {
		return Skill{}, err
	}
	defer func() { _ = root.Close() }()
	files, size := map[string][]byte{}, int64(0)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ignored(name) && e.IsDir():
			return fs.SkipDir
		case ignored(name) || e.IsDir():
			return nil
		case !e.Type().IsRegular():
			return invalid("%q is a symbolic link or not a regular file", text.Printable(name))
		case len(files) == maxFiles:
			return invalid("the skill has more than %d files", maxFiles)
		}
		data, err := readLimited(root, name, maxBytes-size)
		files[name], size = data, size+int64(len(data))
		return err
	})
	if err != nil {
		return Skill{}, err
	}
	return New(filepath.Base(absolute), files)
}

// readLimited reads a file of at most room bytes.
func readLimited(root *os.Root, name string, room int64) ([]byte, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > room {
		return nil, invalid("the skill is larger than %d bytes", maxBytes)
	}
	return root.ReadFile(name)
}

// readFlat reads a skill in the older form: skills/double_number.py with a function, and perhaps double_number.md.
func readFlat(name string) (Skill, error) {
	dir, file := filepath.Split(name)
	root, err := os.OpenRoot(filepath.Clean(dir))
	if err != nil {
		return Skill{}, err
	}
	defer func() { _ = root.Close() }()
	module := strings.TrimSuffix(file, ".py")
	code, err := readLimited(root, file, maxBytes)
	if err != nil {
		return Skill{}, err
	}
	notes, err := readLimited(root, module+".md", maxBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Skill{}, err
	}
	d := Draft{Name: NameOf(strings.ToLower(module)), Code: string(code), Instructions: string(notes)}
	d.Description = describe(d, string(notes))
	files, err := FromProgram(d)
	if err != nil {
		return Skill{}, err
	}
	return New("", files)
}

// describe returns the first paragraph of the notes without headings, or else a sentence about the program.
func describe(d Draft, notes string) string {
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(notes, "\r\n", "\n"), "\n\n") {
		for paragraph = strings.TrimSpace(paragraph); strings.HasPrefix(paragraph, "#"); {
			_, rest, _ := strings.Cut(paragraph, "\n")
			paragraph = strings.TrimSpace(rest)
		}
		if line := text.OneLine(paragraph); line != "" {
			return text.Truncate(line, maxDescription)
		}
	}
	return fmt.Sprintf("The program %s.py, as a skill.", ModuleOf(d.Name))
}

// Broken is an invalid skill in the directory of the fleet's skills.
type Broken struct{ Path, Message string }

// readAll reads the skills in a directory: directories with a SKILL.md, and files NAME.py. A missing directory has
// none.
func readAll(dir string) (list []Skill, broken []Broken, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read skills: %w", err)
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if !isSkill(name, e) {
			continue
		}
		s, err := Read(name)
		if err == nil && slices.ContainsFunc(list, func(other Skill) bool { return other.Name == s.Name }) {
			err = invalid("another skill of the directory is named %s", s.Name)
		}
		if err != nil {
			broken = append(broken, Broken{e.Name(), err.Error()})
			continue
		}
		list = append(list, s)
	}
	return list, broken, nil
}

// isSkill reports whether an entry of a directory of skills is meant to be a skill.
func isSkill(name string, e fs.DirEntry) bool {
	base := e.Name()
	switch {
	case ignored(base) || strings.HasPrefix(base, "_"):
		return false
	case e.IsDir():
		for _, file := range []string{"SKILL.md", "skill.md"} {
			if _, err := os.Lstat(filepath.Join(name, file)); err == nil {
				return true
			}
		}
		return false
	}
	return path.Ext(base) == ".py"
}

// stamp describes the files of a directory: it changes when one of them does. It ignores what follows the first
// 10*maxFiles entries.
func stamp(dir string) string {
	var out strings.Builder
	count := 0
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target // WalkDir does not follow a link
	}
	_ = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // readAll reports it
		}
		if count++; count > 10*maxFiles {
			return fs.SkipAll
		}
		if info, err := e.Info(); err == nil {
			fmt.Fprintf(&out, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
	return out.String()
}
