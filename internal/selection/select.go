package selection

// Ranked returns the ids of the best tools for one sentence, best first, at most limit: the bare ranking, without
// cut-off, for measurement.
func (s *Snapshot) Ranked(sentence string, history *History, limit int) []string {
	found, _ := s.rank(sentence, history, nil, limit)
	ids := make([]string, len(found))
	for i, c := range found {
		ids[i] = s.tools[c.tool].ID()
	}
	return ids
}
