package pylayer

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// fileOptions are the options of pip that a requirements file may contain. Others could make pip run the code of a
// package, or read other requirements files. The hash of the layer covers neither those nor wheels on this host, which
// --find-links and a requirement such as x-1-py3-none-any.whl can name: a layer does not change with them.
var fileOptions = []string{
	"-i", "--index-url", "--extra-index-url", "--no-index", "-f", "--find-links", "--trusted-host", "--pre",
	"--prefer-binary", "--require-hashes", "--hash",
}

var (
	lineBreak = regexp.MustCompile("\r\n|[\n\r\v\f\x1c-\x1e\u0085\u2028\u2029]")
	comment   = regexp.MustCompile(`(^|\s+)#.*$`)
	// coding is a comment that pip obeys in the first two lines (PEP 263). Its group is the encoding.
	coding = regexp.MustCompile(`^#.*?coding[:=][\s\v]*([-\w.]+)`)
	// named is a requirement by name. Its groups are the name, the versions and the marker.
	named = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]/]*\])?\s*([(<>=!~][^/@;]*)?(;.*)?$`)
	// direct is a requirement with the URL of its file. Its groups are the URL and the marker.
	direct = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[^\]/]*\])?\s*@\s*([^\s;]+)\s*(;.*)?$`)
	// archive is the name of a file that pip builds if it exists.
	archive = regexp.MustCompile(`(?i)\.(zip|tgz|tbz|txz|tlz|tar(\.(gz|bz2|xz|lz|lzma))?)$`)
)

// checkWheelsOnly returns an error if pip might build a package of a requirements file, or read other such files.
func checkWheelsOnly(file []byte) error {
	if !utf8.Valid(file) || bytes.ContainsRune(file, 0) {
		return errors.New("the file is not text in UTF-8")
	}
	file = bytes.TrimPrefix(file, []byte("\uFEFF")) // as pip does
	for i, line := range bytes.SplitN(file, []byte("\n"), 3) {
		m := coding.FindSubmatch(line)
		if i < 2 && m != nil && !slices.Contains([]string{"utf-8", "utf8"}, strings.ToLower(string(m[1]))) {
			return fmt.Errorf("line %d declares the encoding %.200q: the file must be in UTF-8", i+1, m[1])
		}
	}
	joined, first := "", 1
	lines := lineBreak.Split(string(file), -1)
	for i, line := range lines {
		isComment := strings.HasPrefix(strings.TrimSpace(line), "#")
		if strings.HasSuffix(line, `\`) && !isComment {
			if joined += strings.Trim(line, `\`); i < len(lines)-1 {
				continue
			}
			line = ""
		}
		if isComment {
			line = " " + line
		}
		requirement := strings.TrimSpace(comment.ReplaceAllString(joined+line, ""))
		if why := refuse(requirement); why != "" {
			return fmt.Errorf("line %d, %.200q: %s", first, requirement, why)
		}
		joined, first = "", i+2
	}
	return nil
}

// refuse returns why a line, which has no comment, is refused, or "".
func refuse(line string) string {
	words := strings.Fields(line)
	at := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "-") })
	if at < 0 {
		at = len(words)
	}
	for _, word := range words[at:] {
		option, _, _ := strings.Cut(strings.TrimLeft(word, `"'\`), "=")
		if strings.HasPrefix(option, "-") && !slices.Contains(fileOptions, option) {
			return "the only options that a requirements file may contain are " + strings.Join(fileOptions, ", ")
		}
	}
	requirement := strings.Join(words[:at], " ")
	if requirement == "" {
		return ""
	}
	if m := named.FindStringSubmatch(requirement); m != nil && !archive.MatchString(strings.TrimSpace(m[1]+m[2])) {
		return ""
	}
	if m := direct.FindStringSubmatch(requirement); m != nil {
		u, err := url.Parse(m[1])
		if err == nil && (u.Scheme == "https" || u.Scheme == "http") && path.Ext(u.Path) == ".whl" {
			return ""
		}
	}
	return "only wheels are installed: want the name of a package, or NAME @ https://HOST/PATH.whl"
}
