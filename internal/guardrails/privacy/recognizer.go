package privacy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// Recognizer finds names of persons and places with a service over HTTP, which has the interface of Presidio's
// analyzer: POST {"text", "language"} returns a list of {"entity_type", "start", "end", "score"}, with offsets in
// characters.
type Recognizer struct {
	URL      string
	Language string        // of the texts; the default is "en"
	Timeout  time.Duration // for all requests about one text or JSON value; the default is 2 s
	Client   *http.Client  // the default is http.DefaultClient
	MinScore float64       // entities with a lower score are ignored
}

// unchecked is the type of a text that the recognizer could not judge. The whole text is replaced.
const unchecked Type = "unchecked"

// Limits of a request and of its response, in bytes.
const (
	maxRecognized = 100 << 10
	maxResponse   = 4 << 20
)

// recognizedTypes has the types of the service's entities. Other entities are ignored.
var recognizedTypes = map[string]Type{
	"PERSON": Person, "PER": Person, "LOCATION": Place, "LOC": Place, "GPE": Place,
}

// recognize returns the names in each of texts. If the service fails, it also returns the error, and each text that the
// service has not judged is one value of the type unchecked, if it contains a letter.
func (t *Tokens) recognize(ctx context.Context, texts ...string) (found map[string][]Span, failed error) {
	if t.recognizer == nil {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, cmp.Or(t.recognizer.Timeout, 2*time.Second))
	defer stop()
	found = map[string][]Span{}
	for len(texts) > 0 {
		n := batch(texts)
		if failed = t.recognizer.find(ctx, texts[:n], found); failed != nil {
			for _, text := range texts {
				if mayHaveNames(text) {
					found[text] = []Span{{0, len(text), unchecked}}
				}
			}
			break
		}
		texts = texts[n:]
	}
	for text, spans := range found {
		kept := spans[:0]
		for _, s := range spans {
			if s.Type == unchecked || t.detector.types[s.Type] {
				kept = append(kept, s)
			}
		}
		found[text] = kept
	}
	return found, failed
}

// mayHaveNames reports whether a text contains letters besides those of tokens.
func mayHaveNames(text string) bool {
	return strings.ContainsFunc(tokenForm.ReplaceAllString(text, ""), isLetter)
}

func isLetter(r rune) bool { return r >= 0x80 || class[r]&isAlnum != 0 && class[r]&isDigit == 0 }

// batch returns how many texts fit into a request: at least one.
func batch(texts []string) int {
	size := 0
	for i, text := range texts {
		if size += len(text) + 1; size > maxRecognized && i > 0 {
			return i
		}
	}
	return len(texts)
}

// entity is one name that the service found, with offsets in characters.
type entity struct {
	Type  string  `json:"entity_type"`
	Start int     `json:"start"`
	End   int     `json:"end"`
	Score float64 `json:"score"`
}

// find adds the names in texts to found. It sends the texts as one, a line each.
func (r *Recognizer) find(ctx context.Context, texts []string, found map[string][]Span) error {
	joined := strings.Join(texts, "\n")
	if len(joined) > maxRecognized {
		return errors.New("the text is too large for the recognizer")
	}
	list, err := r.ask(ctx, joined)
	if err != nil {
		return err
	}
	offsets := offsetsOf(joined)
	for _, e := range list {
		kind := recognizedTypes[e.Type]
		if e.Start < 0 || e.End <= e.Start || e.End >= len(offsets) {
			return fmt.Errorf("the recognizer found something from %d to %d of %d characters",
				e.Start, e.End, len(offsets)-1)
		}
		if kind == "" || e.Score < r.MinScore {
			continue
		}
		addSpan(texts, Span{offsets[e.Start], offsets[e.End], kind}, found)
	}
	return nil
}

// addSpan adds a span of the joined texts to the texts that it lies in.
func addSpan(texts []string, s Span, found map[string][]Span) {
	at := 0
	for _, text := range texts {
		start, end := max(s.Start-at, 0), min(s.End-at, len(text))
		if start < end {
			found[text] = append(found[text], Span{start, end, s.Type})
		}
		at += len(text) + 1
	}
}

// offsetsOf returns the offset in bytes of each character, and the length of the text. An invalid byte is a character.
func offsetsOf(text string) []int {
	offsets := make([]int, 0, utf8.RuneCountInString(text)+1)
	for i := range text {
		offsets = append(offsets, i)
	}
	return append(offsets, len(text))
}

// ask sends a text to the service and returns the entities in its response.
func (r *Recognizer) ask(ctx context.Context, text string) ([]entity, error) {
	body, err := json.Marshal(map[string]string{"text": text, "language": cmp.Or(r.Language, "en")})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := cmp.Or(r.Client, http.DefaultClient).Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which may contain a key
		}
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the recognizer responded with %s", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxResponse {
		return nil, errors.New("the recognizer's response is too large")
	}
	var list []entity
	err = json.Unmarshal(data, &list)
	return list, err
}
