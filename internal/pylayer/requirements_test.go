package pylayer

import (
	"strings"
	"testing"
)

// TestWheelsOnly checks that lines are refused with which pip would build a package, or read another file.
func TestWheelsOnly(t *testing.T) {
	for _, text := range []string{
		"--no-binary x\nx", "--no-binary=:all:", "--no-bin x", "--only-binary=:none:", "--pre -e .", "\t--no-binary x",
		"--pre \"--no-binary\" :all:", "--no-\\\nbinary :all:", "x --global-option=y", "-r more.txt", "-rmore.txt",
		"--requirement=more.txt", "-c more.txt", "-e .", "--editable ./x", "./x", "x/", "/srv/x", "~/x", "x==1/../y",
		"x-1.0.tar.gz", "x.zip", "x[y].tgz", "x==1.tar.gz", "git+https://example.org/x", "https://example.org/x.zip",
		"https://example.org/x-1-py3-none-any.whl", "x @ git+https://example.org/x.whl", "x @ file:///srv/x.whl",
		"x @ https://example.org/x-1.0.tar.gz", "x@https://example.org/x;y.whl", "x @ https://example.org/x.whl/",
		"x ; python_version > '3' \\ \n./y", "# \\\n./x", "x \\\n# \\\n./y", "x\x0c./y", "x\r./y", "x\x00", "./x\\",
		"# coding: unicode_escape\n# \\n./x", "#\n# -*- coding=UTF-7 -*-\nx", "#coding:\vrot13\nx", "\uFEFF./x",
	} {
		if err := checkWheelsOnly([]byte(text)); err == nil {
			t.Errorf("checkWheelsOnly(%q) = nil, want an error", text)
		}
	}
	for _, text := range []string{
		"", "# comment\n\nx\r\ny==1.0  # comment\r\n", "x[a,b]>=1,<2 ; python_version > '3'", "x (>=1)", "x~=1.0",
		"x==1 --hash=sha256:00 \\\n  --hash=sha256:01", "x \\\n==1", "x # \\\n./y", "x-1-py3-none-any.whl",
		"x @ https://example.org/x-1-py3-none-any.whl#sha256=00 ; python_version > '3'", "--pre\nx", "x == 1.*",
		"--index-url https://${TOKEN}@example.org/simple", "--no-index\n--find-links ./wheels", "zope.interface",
		"\uFEFFx", "\uFEFF# comment\nx", "# -*- coding: utf-8 -*-\nx", "#\n# vim: fileencoding=UTF8\nx",
		"x\ny\n# coding: latin-1", "x # coding: latin-1",
	} {
		if err := checkWheelsOnly([]byte(text)); err != nil {
			t.Errorf("checkWheelsOnly(%q) = %v, want nil", text, err)
		}
	}
	err := checkWheelsOnly([]byte("x\r\n\r\ny==1 \\\r\n  --hash=a\r\n-r more.txt\r\n"))
	if want := `line 5, "-r more.txt": `; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("checkWheelsOnly with another file = %v, want an error that begins with %s", err, want)
	}
}
