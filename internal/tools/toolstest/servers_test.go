package toolstest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/pythontest"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/servers"
)

// TestPythonModules runs the Python tests of the hand-written modules, without a fleet.
func TestPythonModules(t *testing.T) {
	dir := t.TempDir()
	if err := servers.Install(filepath.Join(dir, "servers")); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("testdata/test_servers.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(pythontest.Find(t), "-B", script)
	cmd.Env = []string{"PYTHONPATH=" + dir, "LANG=C.UTF-8"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("run the Python tests = %v, want nil\n%s", err, out)
	}
}

func TestShippedTools(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "servers")
	for range 2 { // the second Install changes nothing
		if err := servers.Install(dir); err != nil {
			t.Fatal(err)
		}
	}
	listing, err := tools.OpenCatalogue(dir, tools.Options{Check: tools.PythonChecker("")}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tool := range listing.Tools {
		got = append(got, tool.ID()+" "+string(tool.State)+" "+tool.Signature+" | "+tool.Summary())
	}
	want := []string{
		`calculator/add approved add(a: float, b: float) -> float | Add two numbers together.`,
		`calculator/calculate approved calculate(expression: str) -> float | Evaluate a mathematical expression.`,
		`calculator/multiply approved multiply(a: float, b: float) -> float | Multiply two numbers.`,
		`database/execute local execute(sql: str, parameters: Parameters = None) -> ExecuteResult | ` +
			`Execute a SQL statement (INSERT, UPDATE, DELETE) on the database.`,
		`database/list_tables local list_tables() -> List[str] | List all tables in the database.`,
		`database/query local query(sql: str, parameters: Parameters = None) -> List[Dict[str, Any]] | ` +
			`Execute a SQL query on the database.`,
		`filesystem/list_directory local list_directory(path: str,` +
			` recursive: Optional[bool] = None) -> ListDirectoryResult | List the contents of a directory.`,
		`filesystem/read_file local read_file(path: str, encoding: Optional[str] = None) -> str | ` +
			`Read the contents of a file.`,
		`filesystem/write_file local write_file(path: str, content: str,` +
			` encoding: Optional[str] = None) -> WriteFileResult | Write content to a file.`,
		`weather/get_forecast approved get_forecast(location: str, days: int = UNSET, units: Literal["celsius",` +
			` "fahrenheit"] = UNSET) -> GetForecastResult | Get weather forecast for a location.`,
		`weather/get_weather approved get_weather(location: str, units: Literal["celsius",` +
			` "fahrenheit"] = UNSET) -> GetWeatherResult | Get current weather information for a location.`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if len(listing.Broken) > 0 || len(listing.Warnings) > 0 {
		t.Errorf("broken %v, warnings %v, want none", listing.Broken, listing.Warnings)
	}
	files, err := fs.Glob(servers.FS, "*/__init__.py")
	if want := []string{
		"calculator/__init__.py", "database/__init__.py", "filesystem/__init__.py", "weather/__init__.py",
	}; err != nil || !slices.Equal(files, want) {
		t.Errorf("packages = %v, %v; want the four servers", files, err)
	}
}

func TestInstallKeepsOtherFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"approvals.json": "{}", "mine/f.py": "def f(): pass\n", "calculator/add.py": "old",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := servers.Install(dir); err != nil {
		t.Fatal(err)
	}
	shipped, err := servers.FS.ReadFile("calculator/add.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"approvals.json": "{}", "mine/f.py": "def f(): pass\n", "calculator/add.py": string(shipped),
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s = %.20q, %v, want %.20q", name, got, err, want)
		}
	}
}
