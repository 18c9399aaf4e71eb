package selection

import "testing"

// A query is uncertain if its best tool does the opposite, also if other tools have all of its words.
func TestOpposites(t *testing.T) {
	tool := func(name, description string) Tool { return Tool{Server: "s", Name: name, Description: description} }
	s := Build([]Tool{
		tool("mount_volume", "Mount a volume."),
		tool("freeze_account", "Freeze a bank account."),
		tool("archive_project", "Archive a project."),
		tool("mute_channel", "Mute a channel."),
		tool("login_user", "Log a user in."),
		tool("oldest_message", "Get the oldest message."),
		tool("encode_text", "Encode a text as Morse."),
		tool("add_member", "Add a member to a group."),
		tool("close_issue", "Close an open issue."),
		tool("pin_item", "Pin or unpin an item."),
		tool("words", "Unmount, unfreeze, unarchive, unmute, out, newest, decode and remove are words."),
	})
	for _, c := range []struct{ query, opposite, same string }{
		{"unmount the volume", "mount_volume", "mount the volume"},
		{"unfreeze the bank account", "freeze_account", "freeze the bank account"},
		{"unarchive the project", "archive_project", "archive the project"},
		{"unmute the channel", "mute_channel", "mute the channel"},
		{"log the user out", "login_user", "log the user in"},
		{"newest message", "oldest_message", "oldest message"},
		{"decode the Morse text", "encode_text", "encode the Morse text"},
		{"remove a member from a group", "add_member", "add a member to a group"},
		{"", "close_issue", "close the issue that is open"},
		{"", "pin_item", "unpin the item"},
	} {
		for query, opposite := range map[string]bool{c.query: true, c.same: false} {
			r, err := s.Select(Request{Queries: []string{query}, Min: 20, Explain: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range r.Servers {
				for _, h := range g.Tools {
					if h.Tool == c.opposite && h.Why.OtherOperation != opposite {
						t.Errorf("Select(%q): %s does the opposite: %v, want %v", query, h.Tool, !opposite, opposite)
					}
				}
			}
			if confidence := r.Queries[0].Confidence; query != "" && (confidence < 0.4) != opposite {
				t.Errorf("Select(%q): confidence %.2f; want it below 0.4: %v", query, confidence, opposite)
			}
		}
	}
}
