package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/moor-storage/moor/test/bench/results"
)

// auditEvent is what the benchmark reads of a line of an audit log
// (audit.k8s.io/v1 Event).
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
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
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
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
func (e auditEvent) counts() bool {
	return e.ObjectRef != nil && !uncounted[e.ObjectRef.Resource]
}

// resource is resource.group/subresource, as people write it.
func (e auditEvent) resource() string {
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
func (e auditEvent) refused() bool {
	return e.ResponseStatus != nil && e.ResponseStatus.Code >= http.StatusBadRequest
}

// auditMark is a place in an audit log: what comes after it is to be read.
type auditMark struct {
	path   string
	offset int64
}

func markAudit(path string) (auditMark, error) {
	info, err := os.Stat(path)
	if err != nil {
		return auditMark{}, fmt.Errorf("find the end of an audit log: %w", err)
	}
	return auditMark{path: path, offset: info.Size()}, nil
}

// since reads the writes that count from the mark to the end of the log.
func (m auditMark) since() ([]auditEvent, error) {
	f, err := os.Open(m.path)
	if err != nil {
		return nil, fmt.Errorf("read an audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(m.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read audit log %s: %w", m.path, err)
	}
	events, err := parseAudit(f)
	if err != nil {
		return nil, fmt.Errorf("read audit log %s: %w", m.path, err)
	}
	return events, nil
}

// parseAudit reads whole lines; a last one without its newline is still being
// written and is left.
func parseAudit(in io.Reader) ([]auditEvent, error) {
	var out []auditEvent
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("a line is not an audit event: %w", err)
		}
		if e.counts() {
			out = append(out, e)
		}
	}
}

// perRun counts events by the run in which the API server received them.
// starts are in order; a run lasts until the next one starts.
func perRun(events []auditEvent, starts []time.Time) []float64 {
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

// writeRow is how often someone wrote one kind of thing.
type writeRow struct {
	cluster, who, verb, resource string
	count, refused               int
}

// tally counts the events of a cluster by who, verb and resource, most first.
func tally(cluster string, events []auditEvent) []writeRow {
	rows := map[writeRow]*writeRow{}
	for _, e := range events {
		key := writeRow{cluster: cluster, who: short(e.User.Username), verb: e.Verb, resource: e.resource()}
		row := rows[key]
		if row == nil {
			fresh := key
			row = &fresh
			rows[key] = row
		}
		row.count++
		if e.refused() {
			row.refused++
		}
	}
	var out []writeRow
	for _, row := range rows {
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b writeRow) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.resource, b.resource), cmp.Compare(a.who, b.who), cmp.Compare(a.verb, b.verb))
	})
	return out
}

// short is the last part of a user's name: the account of a process.
func short(user string) string { return user[strings.LastIndex(user, ":")+1:] }

// printWrites prints who wrote what, per attach and detach.
func printWrites(out io.Writer, rows []writeRow, runs int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cluster\twho\tverb\tresource\tper attach+detach\trefused\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.cluster, r.who, r.verb, r.resource,
			number(results.Round(float64(r.count)/float64(runs))), number(results.Round(float64(r.refused)/float64(runs))))
	}
	return w.Flush()
}

// number prints as few digits as say it.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
