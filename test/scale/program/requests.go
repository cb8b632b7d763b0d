package program

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/moor-storage/moor/test/bench/audit"
)

// Requests is what the accounts of Moor asked the API servers for.
type Requests struct {
	// Reads are gets and lists. Watches do not count, nor the lists that they begin with.
	Reads int
	// Writes are all but beats.
	Writes int
	// Beats are what is asked at the rate of time: leases, copies of beats, and lists
	// of one object by which a program finds out whether its API server lives. That
	// tells of a lease that it was taken is one of them.
	Beats int
	// What are reads and writes by account, verb and resource, Aside are the beats.
	What, Aside map[string]int
}

// Count counts the events of audit logs. Those of one account, unless it is "".
func Count(events []audit.Event, account string) Requests {
	out := Requests{What: map[string]int{}, Aside: map[string]int{}}
	for _, e := range events {
		if account != "" && e.Account() != account {
			continue
		}
		what := strings.Join([]string{e.Account(), e.Verb, e.Resource()}, " ")
		switch kindOf(e) {
		case read:
			out.Reads++
			out.What[what]++
		case write:
			out.Writes++
			out.What[what]++
		case beat:
			out.Beats++
			out.Aside[what]++
		}
	}
	return out
}

// String tells the most frequent first.
func (r Requests) String() string {
	const most = 12
	keys := sorted(r.What)
	var out []string
	for _, key := range keys[:min(len(keys), most)] {
		out = append(out, strconv.Itoa(r.What[key])+" "+key)
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// Print prints all, the most frequent first, and which of them are beats.
func (r Requests) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  requests\taccount, verb, resource\t\t")
	for _, of := range []struct {
		what map[string]int
		note string
	}{{r.What, ""}, {r.Aside, "beat"}} {
		for _, key := range sorted(of.what) {
			fmt.Fprintf(w, "  %d\t%s\t%s\t\n", of.what[key], key, of.note)
		}
	}
	return w.Flush()
}

// sorted are the keys, those of the largest numbers first.
func sorted(of map[string]int) []string {
	return slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
}

// kind of a request.
type kind int

const (
	neither kind = iota
	read
	write
	beat
)

// kindOf tells what an event counts as. A beat is a Lease, an event that tells of one,
// or the DPU's half of a DPUStorageNode and nothing else of its status.
func kindOf(e audit.Event) kind {
	resource := e.Resource()
	switch e.Verb {
	case "get", "list":
		switch {
		case strings.HasPrefix(resource, "leases.") || e.Verb == "list" && strings.HasSuffix(e.RequestURI, "?limit=1"):
			return beat
		case e.Verb == "list" && beginsWatch(e.RequestURI):
			return neither
		}
		return read
	case "create", "update", "patch", "delete", "deletecollection":
		if strings.HasPrefix(resource, "leases.") || isEvent(resource) && tellsOfLease(e.RequestObject) ||
			resource == "dpustoragenodes.storage.moor.dev/status" && copiesBeat(e.RequestObject) {
			return beat
		}
		if strings.HasSuffix(resource, "reviews.authorization.k8s.io") || strings.HasSuffix(resource, "reviews.authentication.k8s.io") {
			return neither
		}
		return write
	}
	return neither
}

// beginsWatch reports whether a list is an informer's: it alone says how old the answer
// may be.
func beginsWatch(uri string) bool {
	asked, err := url.Parse(uri)
	return err == nil && asked.Query().Has("resourceVersion")
}

// copiesBeat reports whether a patch writes the DPU's half alone.
func copiesBeat(body []byte) bool {
	var patch struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if json.Unmarshal(body, &patch) != nil || len(patch.Status) != 1 {
		return false
	}
	_, dpu := patch.Status["dpu"]
	return dpu
}

func isEvent(resource string) bool {
	return resource == "events" || resource == "events.events.k8s.io"
}

// tellsOfLease reports whether an event is about a Lease: who leads now.
func tellsOfLease(body []byte) bool {
	type object struct {
		Kind string `json:"kind"`
	}
	var event struct {
		Core object `json:"involvedObject"` // v1
		New  object `json:"regarding"`      // events.k8s.io/v1
	}
	return json.Unmarshal(body, &event) == nil && (event.Core.Kind == "Lease" || event.New.Kind == "Lease")
}
