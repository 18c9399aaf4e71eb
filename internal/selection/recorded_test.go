package selection

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorded returns the index of the tools in testdata/recorded.jsonl.gz, which real MCP servers list.
var recorded = sync.OnceValues(func() (*Index, error) {
	file, err := os.Open("testdata/recorded.jsonl.gz")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	var tools []Tool
	for decoder := json.NewDecoder(lines); ; {
		var line struct {
			Tool
			Name string `json:"tool"`
		}
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return Build(tools), nil
		} else if err != nil {
			return nil, err
		}
		line.Tool.Name = line.Name
		tools = append(tools, line.Tool)
	}
})

// TestRecordedQueries searches the recorded tools in the words that a person would use. A query succeeds if one of its
// tools is among the first five.
func TestRecordedQueries(t *testing.T) {
	s, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	queries := []struct {
		text  string
		tools string // any of them
	}{
		{"list pull requests waiting for my review", "github/search_pull_requests github/list_pull_requests"},
		{"CPU usage of my service over the last hour from Prometheus", "grafana/query_prometheus"},
		{"add a row to a notion database", "notion/API-post-page"},
		{"take a picture of the page", "playwright/browser_take_screenshot chrome-devtools/take_screenshot"},
		{"create a virtual machine", "azure/compute_vm_create"},
		{"read a secret from the key vault", "azure/keyvault_secret_get"},
		{"post to slack", "slack/slack_post_message"},
		{"click a button on a web page", "playwright/browser_click chrome-devtools/click"},
		{"show the pods of a namespace", "k8s-go/pods_list_in_namespace k8s-node/kubectl_get"},
		{"run a SQL query on postgres", "postgres/query supabase/execute_sql azure/postgres_database_query"},
		{"find documents in a mongodb collection", "mongodb/find"},
		{"scrape a website to markdown", "firecrawl/firecrawl_scrape"},
		{"search the web for news", "tavily/tavily_search firecrawl/firecrawl_search"},
		{"convert an address to coordinates", "map/geocode"},
		{"open an issue in a repository", "github/issue_write github-old/create_issue"},
		{"delete a pod", "k8s-go/pods_delete k8s-node/kubectl_delete"},
		{"look up a contact in the CRM by email", "hubspot/hubspot-search-objects"},
		{"read the logs of a container", "k8s-go/pods_log k8s-node/kubectl_logs"},
		{"find dashboards about latency", "grafana/search_dashboards"},
		{"documentation of a library", "context7/query-docs"},
		{"upload a file to blob storage", "azure/storage_blob_upload"},
		{"read the text of a PDF", "pdf/read_pdf_bytes pdf/display_pdf"},
		{"list storage accounts", "azure/storage_account_get"},
		{"change the title of a notion page", "notion/API-patch-page"},
		{"who is on call", "grafana/get_current_oncall_users grafana/list_oncall_users"},
	}
	found, first := 0, 0
	for _, q := range queries {
		ranked := s.Ranked(q.text, nil, 60)
		at := slices.IndexFunc(ranked, func(id string) bool { return slices.Contains(strings.Fields(q.tools), id) })
		for id := range strings.FieldsSeq(q.tools) {
			if _, ok := s.Tool(id); !ok {
				t.Errorf("the recorded tools do not contain %s", id)
			}
		}
		switch {
		case at == 0:
			first++
			fallthrough
		case at > 0 && at < 5:
			found++
		default:
			t.Logf("%q: found at %d; the first are %v", q.text, at+1, ranked[:5])
		}
	}
	t.Logf("%d of %d queries find a tool among the first five, %d as the first", found, len(queries), first)
	if found < 24 {
		t.Errorf("%d of %d queries find a tool among the first five, want 24", found, len(queries))
	}
}

// TestRecordedOperations checks that a search for one operation on a thing finds the tool for it before the tools for
// its other operations.
func TestRecordedOperations(t *testing.T) {
	s, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text, want, others string
	}{
		{"create a virtual machine", "azure/compute_vm_create", "azure/compute_vm_update azure/compute_vm_delete"},
		{"I want to create a virtual machine", "azure/compute_vm_create", "azure/compute_vm_update"},
		{"resize or update a virtual machine", "azure/compute_vm_update", "azure/compute_vm_create"},
		{"delete a virtual machine", "azure/compute_vm_delete", "azure/compute_vm_create azure/compute_vm_get"},
		{"read a secret from the key vault", "azure/keyvault_secret_get", "azure/keyvault_secret_create"},
		{"create a secret in the key vault", "azure/keyvault_secret_create", "azure/keyvault_secret_get"},
		{"show a managed disk", "azure/compute_disk_get", "azure/compute_disk_delete azure/compute_disk_create"},
		{"remove a managed disk", "azure/compute_disk_delete", "azure/compute_disk_get azure/compute_disk_update"},
		{"delete a branch of the database", "supabase/delete_branch", "supabase/create_branch supabase/list_branches"},
		{"please create a branch of the database", "supabase/create_branch", "supabase/delete_branch"},
		{"delete a block in notion", "notion/API-delete-a-block", "notion/API-update-a-block"},
		{"update a block in notion", "notion/API-update-a-block", "notion/API-delete-a-block"},
		{"retrieve a block in notion", "notion/API-retrieve-a-block", "notion/API-delete-a-block"},
		{"insert documents into a collection", "mongodb/insert-many", "mongodb/delete-many mongodb/update-many"},
		{"delete documents of a collection", "mongodb/delete-many", "mongodb/insert-many mongodb/find"},
	} {
		ranked := s.Ranked(c.text, nil, s.Len())
		at := slices.Index(ranked, c.want)
		for other := range strings.FieldsSeq(c.others) {
			if i := slices.Index(ranked, other); at < 0 || i >= 0 && i < at {
				t.Errorf("Ranked(%q): %s is at %d, %s at %d; want the former first", c.text, c.want, at+1, other, i+1)
			}
		}
	}
}

func TestOperations(t *testing.T) {
	const create, read, update, remove = 1, 2, 4, 8
	for sentence, want := range map[string]operations{
		"create a user": create, "Please remove the file.": remove, "look up a contact": read,
		"find the user and delete it":  read | remove,
		"a list of users":              0, // a noun
		"delete the update of my post": remove,
		"delete it. Where is it?":      0, // a clause without a known operation
		"can you show me the weather":  read,
		"":                             0,
	} {
		if got := operationsOf(sentence); got != want {
			t.Errorf("operationsOf(%q) = %b, want %b", sentence, got, want)
		}
	}
	for _, c := range []struct {
		name, description string
		want              operations
	}{
		{"create_issue", "", create},
		{"create_or_update_file", "", create | update},
		{"compute_vm_delete", "", remove},
		{"search_index_delete", "", read | remove},
		{"API-retrieve-a-block", "", read},
		{"weather", "Creates a forecast.", create},
		{"weather", "The weather.", 0},
	} {
		if got := toolOperations(&Tool{Name: c.name, Description: c.description}); got != c.want {
			t.Errorf("toolOperations(%s: %s) = %b, want %b", c.name, c.description, got, c.want)
		}
	}
}
