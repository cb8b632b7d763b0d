// Package audit reads from the audit logs of API servers who wrote what.
package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Event is what the benchmark reads of a line of an audit log
// (audit.k8s.io/v1 Event).
type Event struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus *struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// RequestObject is the body; only where the policy of the log asks for it.
	RequestObject            json.RawMessage `json:"requestObject"`
	RequestReceivedTimestamp time.Time       `json:"requestReceivedTimestamp"`
}

// uncounted are writes that go on whether volumes are attached or not, of
// Kubernetes' own kinds, and questions that have the form of a write. Moor's own
// kinds all count, heartbeats too: a comparison that left them out would favor
// Moor.
var uncounted = map[string]bool{
	"leases": true, "events": true, "nodes": true, "csinodes": true,
	"subjectaccessreviews": true, "selfsubjectaccessreviews": true, "tokenreviews": true, "serviceaccounts": true,
}

// counts reports whether the event is a write that an attachment may cause.
func (e Event) counts() bool {
	return e.ObjectRef != nil && !uncounted[e.ObjectRef.Resource]
}

// Account is the last part of the name of who asked: the account of a process.
func (e Event) Account() string { return short(e.User.Username) }

// Resource is resource.group/subresource, as people write it; "" for what is about
// no object.
func (e Event) Resource() string {
	if e.ObjectRef == nil {
		return ""
	}
	out := e.ObjectRef.Resource
	if e.ObjectRef.APIGroup != "" {
		out += "." + e.ObjectRef.APIGroup
	}
	if e.ObjectRef.Subresource != "" {
		out += "/" + e.ObjectRef.Subresource
	}
	return out
}

// refused reports whether the API server said no: a conflict, as a rule.
func (e Event) refused() bool {
	return e.ResponseStatus != nil && e.ResponseStatus.Code >= http.StatusBadRequest
}

// Mark is a place in an audit log: what comes after it is to be read.
type Mark struct {
	path   string
	offset int64
}

// MarkEnd is the end of a log now. A line that is still being written comes after it.
func MarkEnd(path string) (Mark, error) {
	f, err := os.Open(path)
	if err != nil {
		return Mark{}, fmt.Errorf("find the end of an audit log: %w", err)
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Mark{}, fmt.Errorf("find the end of audit log %s: %w", path, err)
	}
	for block := make([]byte, 4096); end > 0; {
		n := min(end, int64(len(block)))
		if _, err := f.ReadAt(block[:n], end-n); err != nil {
			return Mark{}, fmt.Errorf("find the end of audit log %s: %w", path, err)
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return Mark{path: path, offset: end - n + int64(i) + 1}, nil
		}
		end -= n
	}
	return Mark{path: path}, nil
}

// Since reads the writes that count from the mark to the end of the log.
func (m Mark) Since() ([]Event, error) { return m.read(Event.counts) }

// All reads every event from the mark to the end of the log.
func (m Mark) All() ([]Event, error) { return m.read(func(Event) bool { return true }) }

func (m Mark) read(wanted func(Event) bool) ([]Event, error) {
	f, err := os.Open(m.path)
	if err != nil {
		return nil, fmt.Errorf("read an audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(m.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read audit log %s: %w", m.path, err)
	}
	events, err := parse(f, wanted)
	if err != nil {
		return nil, fmt.Errorf("read audit log %s: %w", m.path, err)
	}
	return events, nil
}

// parse reads whole lines; a last one without its newline is still being
// written and is left.
func parse(in io.Reader, wanted func(Event) bool) ([]Event, error) {
	var out []Event
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("a line is not an audit event: %w", err)
		}
		if wanted(e) {
			out = append(out, e)
		}
	}
}

// PerRun counts events by the run in which the API server received them.
// starts are in order; a run lasts until the next one starts.
func PerRun(events []Event, starts []time.Time) []float64 {
	out := make([]float64, len(starts))
	for _, e := range events {
		run, exact := slices.BinarySearchFunc(starts, e.RequestReceivedTimestamp, time.Time.Compare)
		if !exact {
			run--
		}
		if run >= 0 {
			out[run]++
		}
	}
	return out
}

// Row is how often someone wrote one kind of thing.
type Row struct {
	Cluster, Who, Verb, Resource string
	Count, Refused               int
}

// Tally counts the events of a cluster by who, verb and resource, most first.
func Tally(cluster string, events []Event) []Row {
	rows := map[Row]*Row{}
	for _, e := range events {
		key := Row{Cluster: cluster, Who: short(e.User.Username), Verb: e.Verb, Resource: e.Resource()}
		row := rows[key]
		if row == nil {
			fresh := key
			row = &fresh
			rows[key] = row
		}
		row.Count++
		if e.refused() {
			row.Refused++
		}
	}
	var out []Row
	for _, row := range rows {
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Who, b.Who), cmp.Compare(a.Verb, b.Verb))
	})
	return out
}

// short is the last part of a user's name: the account of a process.
func short(user string) string { return user[strings.LastIndex(user, ":")+1:] }

// Print prints who wrote what, per attach and detach.
func Print(out io.Writer, rows []Row, runs int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cluster\twho\tverb\tresource\tper attach+detach\trefused\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Cluster, r.Who, r.Verb, r.Resource,
			perRun(r.Count, runs), perRun(r.Refused, runs))
	}
	return w.Flush()
}

// perRun prints a mean with two digits at most.
func perRun(n, runs int) string {
	return strconv.FormatFloat(math.Round(100*float64(n)/float64(runs))/100, 'f', -1, 64)
}
