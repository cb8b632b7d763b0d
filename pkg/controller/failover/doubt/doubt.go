// Package doubt keeps for how long hosts have been alive and of no use, after which they
// fail over without a person's request, if that is wanted.
//
// It is kept in memory and begins anew after a restart: a host is then taken later, and
// never earlier.
package doubt

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moor-storage/moor/internal/kube"
)

// Kind is what puts a host in doubt.
type Kind string

// The kinds of doubt.
const (
	// None: there is none, or it is not one that time decides.
	None Kind = ""
	// NotReady: the host lives, and its Node is not Ready.
	NotReady Kind = "NotReady"
	// DPUSilent: the host lives, and its DPU is silent and has given no lease.
	DPUSilent Kind = "DPUSilent"
)

// Least is the shortest limit: what restarts, or comes back, does so within it.
const Least = time.Minute

// Limits are for how long a host may be in doubt before it fails over; 0: until a person
// asks for it.
type Limits struct {
	NotReady, DPUSilent time.Duration
}

// Validate says which limit is wrong; set names the setting of each kind.
func (l Limits) Validate(set map[Kind]string) error {
	for _, kind := range []Kind{NotReady, DPUSilent} {
		if d := l.of(kind); d != 0 && d < Least {
			return fmt.Errorf("%s is %s: at least %s is needed, or 0 for never", set[kind], d, Least)
		}
	}
	return nil
}

func (l Limits) of(kind Kind) time.Duration {
	switch kind {
	case NotReady:
		return l.NotReady
	case DPUSilent:
		return l.DPUSilent
	case None:
	}
	return 0
}

// Timer keeps since when hosts are in doubt. It is safe for concurrent use.
type Timer struct {
	limits Limits
	since  kube.Recent[begun]
}

// begun is a doubt and when it was noted first.
type begun struct {
	kind Kind
	at   time.Time
}

// New returns a Timer that knows of no doubt.
func New(limits Limits) *Timer { return &Timer{limits: limits} }

// Note notes how a host is now, by the UID of its object, and returns for how long it may be
// so, and how much of that is left. Without a limit both are 0. A doubt that was interrupted,
// or has become another, begins anew; so does one that was not noted for twice the limit.
func (t *Timer) Note(host types.UID, kind Kind, now time.Time) (limit, left time.Duration) {
	if limit = t.limits.of(kind); limit == 0 {
		t.since.Forget(host)
		return 0, 0
	}
	is, known := t.since.Get(host, now)
	if known == 0 || is.kind != kind {
		is = begun{kind, now}
	}
	t.since.Note(host, is, now, now.Add(2*limit))
	return limit, max(0, limit-now.Sub(is.at))
}
