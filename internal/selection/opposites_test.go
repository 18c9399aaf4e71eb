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
		tool("enable_alerts", "Enable alerts."),
		tool("turn_on_light", "Turn on a light."),
		tool("start_machine", "Start a machine."),
		tool("compress_folder", "Compress a folder into an archive."),
		tool("deposit", "Deposit money into a wallet."),
		tool("archive_thread", "Archive a thread."),
		tool("follow_author", "Follow an author."),
		tool("end_recording", "End a recording."),
		tool("words", "Off, disable, down, unzip, extract, take, restore, stop, switch, shut and power, "+
			"unmount, unfreeze, unarchive, unmute, out, newest, decode and remove are words."),
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
		{"turn off alerts", "enable_alerts", "turn on alerts"},
		{"switching the alerts off", "enable_alerts", "activate alerts"},
		{"disable the light", "turn_on_light", "switch the light on"},
		{"power down the machine", "start_machine", "power up the machine"},
		{"shut the machine down", "start_machine", "start the machine"},
		{"unzip a folder", "compress_folder", "zip a folder"},
		{"extract an archive into a folder", "compress_folder", "compress a folder into an archive"},
		{"take money out of a wallet", "deposit", "put money into a wallet"},
		{"restore an archived thread", "archive_thread", "archive a restored thread"},
		{"stop following an author", "follow_author", "start following an author"},
		{"", "end_recording", "stop recording"},
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
