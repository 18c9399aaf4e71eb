package skills

// Check applies the rules of the format to the files of a directory, keyed by path. It returns an *InvalidError with
// everything that is wrong.
func Check(dir string, files map[string][]byte) (Properties, error) {
	file := findSkillFile(files)
	if file == "" {
		return Properties{}, invalid("Missing required file: SKILL.md")
	}
	properties, _, err := readFile(dir, files[file])
	return properties, err
}
