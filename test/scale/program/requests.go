package program

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/test/bench/audit"
)

// Requests is what the accounts of Moor asked the API servers for.
type Requests struct {
	// Reads are gets and lists. Watches do not count.
	Reads int
	// Writes are all but beats.
	Writes int
	// Beats are what is asked at the rate of time: leases, copies of beats, and lists
	// of one object by which a program finds out whether its API server lives.
	Beats int
	// What are reads and writes by account, verb and resource.
	What map[string]int
}

// Count counts the events of audit logs. Those of one account, unless it is "".
func Count(events []audit.Event, account string) Requests {
	out := Requests{What: map[string]int{}}
	for _, e := range events {
		if account != "" && e.Account() != account {
			continue
		}
		switch kindOf(e) {
		case read:
			out.Reads++
		case write:
			out.Writes++
		case beat:
			out.Beats++
			continue
		default:
			continue
		}
		out.What[strings.Join([]string{e.Account(), e.Verb, e.Resource()}, " ")]++
	}
	return out
}

// String tells the most frequent first.
func (r Requests) String() string {
	keys := slices.SortedFunc(maps.Keys(r.What), func(a, b string) int { return r.What[b] - r.What[a] })
	var out []string
	for _, key := range keys[:min(len(keys), 8)] {
		out = append(out, strconv.Itoa(r.What[key])+" "+key)
	}
	return strings.Join(out, ", ")
}

// kind of a request.
type kind int

const (
	neither kind = iota
	read
	write
	beat
)

// kindOf tells what an event counts as. A beat is a Lease, or the DPU's half of a
// DPUStorageNode and nothing else of its status.
func kindOf(e audit.Event) kind {
	resource := e.Resource()
	switch e.Verb {
	case "get", "list":
		if strings.HasPrefix(resource, "leases.") || e.Verb == "list" && strings.HasSuffix(e.RequestURI, "?limit=1") {
			return beat
		}
		return read
	case "create", "update", "patch", "delete", "deletecollection":
		if strings.HasPrefix(resource, "leases.") || resource == "dpustoragenodes.storage.moor.dev/status" && copiesBeat(e.RequestObject) {
			return beat
		}
		if strings.HasSuffix(resource, "reviews.authorization.k8s.io") || strings.HasSuffix(resource, "reviews.authentication.k8s.io") {
			return neither
		}
		return write
	}
	return neither
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
