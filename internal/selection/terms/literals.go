package terms

import (
	"regexp"
	"strings"
)

// A literal is a kind of value in a sentence. The kind helps to find a tool, but the characters do not: the "root" of
// /root/a.xlsx must not find a music tool. So a value is replaced by words for its kind.
type literal struct {
	pattern *regexp.Regexp
	words   string
}

var literals = []literal{
	{regexp.MustCompile(`https?://(?:www\.)?(?:youtube\.com|youtu\.be)/\S*`), " youtube video url "},
	{regexp.MustCompile(`https?://(?:www\.)?github\.com/\S*`), " github repository url "},
	{regexp.MustCompile(`(?:https?|ftp)://[^\s"'<>]+`), " url website "},
	{regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`), " email "},
	// The name of a domain stays, because it is often the name of a service.
	{regexp.MustCompile(`(?i)\b((?:[a-z0-9][a-z0-9-]*\.)+)` +
		`(?:com|org|net|edu|gov|info|io|dev|app|co|ai)(?:\.[a-z]{2})?\b`), " $1 domain "},
	{regexp.MustCompile(`(?i)\barxiv:?\s*\d{4}\.\d{4,5}(?:v\d+)?|\b\d{4}\.\d{5}(?:v\d+)?\b`), " arxiv paper "},
	{regexp.MustCompile(`\bNCT\d{8}\b`), " clinical trial "},
	{regexp.MustCompile(`\b10\.\d{4,9}/\S+`), " doi paper "},
	{regexp.MustCompile(`\b(?:\d{1,3}\.){3}\d{1,3}\b`), " ip address "},
	{regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}(?:T[\d:.]+Z?)?\b`), " date "},
	{regexp.MustCompile(`[$€£¥]\s?\d[\d,.]*`), " amount currency "},
	{regexp.MustCompile(`(?i)\b\d[\d,.]*\s?(?:usd|eur|gbp|jpy|cny|dollars?|euros?)\b`), " amount currency "},
}

// path matches /a/b.c, ./a, ~/a and C:\a. file matches a name with an extension.
var (
	path = regexp.MustCompile(`(?:[A-Za-z]:\\|~/|\.{1,2}/|/)[\w.\-]+(?:[/\\][\w.\-]+)*/?`)
	file = regexp.MustCompile(`\b[\w\-]+\.[A-Za-z][A-Za-z0-9]{0,4}\b`)
)

// fileKinds are words for the kinds of files, by the extension of the name.
var fileKinds = map[string]string{
	"xlsx": "excel spreadsheet", "xls": "excel spreadsheet", "ods": "spreadsheet", "csv": "csv table",
	"tsv": "csv table", "docx": "word document", "doc": "word document", "odt": "document", "rtf": "document",
	"pptx": "powerpoint presentation", "ppt": "powerpoint presentation", "pdf": "pdf document", "txt": "text",
	"md": "markdown", "html": "html", "htm": "html", "json": "json", "xml": "xml", "yaml": "yaml", "yml": "yaml",
	"toml": "toml", "png": "image", "jpg": "image", "jpeg": "image", "gif": "image", "webp": "image", "svg": "image",
	"bmp": "image", "tiff": "image", "mp3": "audio", "wav": "audio", "flac": "audio", "m4a": "audio", "mp4": "video",
	"mov": "video", "avi": "video", "mkv": "video", "zip": "archive", "tar": "archive", "gz": "archive",
	"py": "python code", "js": "javascript code", "ts": "typescript code", "go": "go code", "rs": "rust code",
	"java": "java code", "c": "code", "cpp": "code", "sh": "shell script", "sql": "sql database", "db": "database",
	"sqlite": "sqlite database", "log": "log", "ipynb": "notebook", "parquet": "table",
}

// Literals replaces the literal values in a sentence with words for their kind.
func Literals(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	for _, l := range literals {
		s = l.pattern.ReplaceAllString(s, l.words)
	}
	s = path.ReplaceAllStringFunc(s, func(p string) string {
		if ext, ok := extension(p); ok {
			return " file " + fileKinds[ext] + " "
		}
		if strings.Count(p, "/")+strings.Count(p, `\`) < 2 && !strings.HasPrefix(p, "/") {
			return p
		}
		if len(p) < 4 || strings.HasPrefix(p, "/") && strings.Count(p, "/") == 1 {
			return " " + strings.Trim(p, "/") + " " // "and/or" and "/repos" are words
		}
		return " directory path "
	})
	return file.ReplaceAllStringFunc(s, func(p string) string {
		ext, _ := extension(p)
		if kind, ok := fileKinds[ext]; ok && len(ext) > 1 {
			return " file " + kind + " "
		}
		return p
	})
}

// extension returns the text after the last dot, in lower case.
func extension(s string) (string, bool) {
	i := strings.LastIndexByte(s, '.')
	return strings.ToLower(s[i+1:]), i >= 0
}
