package admission

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"
)

const (
	// settle is how long API servers have to learn of a certificate before it is served.
	settle = time.Minute
	// pause is the shortest time between two certificates that one process makes: replicas whose
	// clocks are months apart would make them in turns without a pause.
	pause = time.Minute
	// lookAgain is the longest time between two looks, so that a clock that was set is noticed.
	lookAgain = time.Hour
)

// seen is what next decides by.
type seen struct {
	// hosts are the names and addresses under which API servers call the webhook; empty if there
	// is no configuration that says so.
	hosts []string
	// bundle is what the API servers trust by the configuration.
	bundle []byte
	// newest and previous are what the Secret holds; nil if it does not, or not in one piece.
	newest, previous *pair
	// serving is what this process serves.
	serving *pair
	// made is when this process has last made one; zero if it has made none.
	made time.Time
}

// step is what has to be done, in the order of the fields.
type step struct {
	// make is why a new certificate is needed, in words; empty if none is.
	make string
	// keep is what stays beside the new one, and is served until that has settled.
	keep *pair
	// bundle is what API servers have to trust.
	bundle []byte
	// serve is what is to be served; nil if there is nothing.
	serve *pair
	// again is when to look again if no watch tells of anything.
	again time.Duration
}

// next says what has to be done now.
func next(now time.Time, s seen) step {
	out := step{serve: s.serving, again: lookAgain, bundle: slices.Concat(trusted(now, s.newest), trusted(now, s.previous))}
	if len(s.hosts) == 0 {
		return out
	}
	why := s.newest.problem(now, s.hosts)
	if why == "" {
		if left := s.newest.ends().Sub(now); left <= renewal {
			why = fmt.Sprintf("the certificate ends at %s", stamp(s.newest.ends()))
		} else {
			out.until(left - renewal)
		}
	}
	if wait := s.made.Add(pause).Sub(now); why != "" && !s.made.IsZero() && wait > 0 && wait <= pause {
		out.until(wait)
	} else if why != "" {
		out.make = why
		out.keep = usable(now, s.hosts, s.newest, s.serving, s.previous)
	}
	out.choose(now, s)
	return out
}

// choose says what is served: the newest once it has settled, and until then what is still good and
// trusted. Where each has a problem, what was served before goes on: the clock that is wrong may be
// the one here.
func (out *step) choose(now time.Time, s seen) {
	if s.newest.problem(now, s.hosts) != "" {
		out.serve = usable(now, s.hosts, s.serving, s.previous)
		for _, p := range []*pair{s.serving, s.newest, s.previous} {
			if out.serve == nil {
				out.serve = p
			}
		}
		return
	}
	before := usable(now, s.hosts, s.previous, s.serving)
	wait := s.newest.made().Add(settle).Sub(now)
	if before == nil || before.same(s.newest) || !trusts(s.bundle, before) || wait <= 0 && trusts(s.bundle, s.newest) {
		out.serve = s.newest
		return
	}
	out.serve = before
	if wait > 0 {
		out.until(wait)
	}
}

// until has the next look come no later than after d.
func (out *step) until(d time.Duration) { out.again = min(out.again, d) }

// usable is the first that every API server would take; nil if there is none.
func usable(now time.Time, hosts []string, from ...*pair) *pair {
	for _, p := range from {
		if p.problem(now, hosts) == "" {
			return p
		}
	}
	return nil
}

// trusted is what the bundle has of a pair: nothing once it has ended.
func trusted(now time.Time, p *pair) []byte {
	if p == nil || !now.Before(p.ends()) {
		return nil
	}
	return p.certPEM
}

// trusts reports whether the bundle has the pair's certificate.
func trusts(bundle []byte, p *pair) bool {
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			return false
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && p != nil && c.Equal(p.certificate) {
			return true
		}
		bundle = rest
	}
}

// same reports whether both are one.
func (p *pair) same(q *pair) bool {
	return p != nil && q != nil && bytes.Equal(p.certificate.Raw, q.certificate.Raw)
}
