package admission

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	service = "pod-provisioner-webhook.moor-pods.svc"
	day     = 24 * time.Hour
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a pair made so long after the begin, for the Service if no hosts are given.
func at(t *testing.T, after time.Duration, hosts ...string) *pair {
	t.Helper()
	if hosts == nil {
		hosts = []string{service}
	}
	p, err := newPair(begin.Add(after), hosts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func bundle(pairs ...*pair) []byte {
	var out []byte
	for _, p := range pairs {
		out = append(out, p.certPEM...)
	}
	return out
}

func TestNext(t *testing.T) {
	old, fresh, moved, both := at(t, 0), at(t, 60*day), at(t, 0, "10.0.0.1"), at(t, 0, service, "10.0.0.1")
	here := []string{service}
	for _, tc := range []struct {
		name  string
		after time.Duration
		seen  seen
		want  step
	}{
		{"nothing is there", 0, seen{hosts: here}, step{make: "there is no certificate", again: lookAgain}},
		{"no configuration", 0, seen{}, step{again: lookAgain}},
		{"no configuration any more", 0, seen{newest: old, serving: old, bundle: nil}, step{serve: old, bundle: bundle(old), again: lookAgain}},
		{"the first, not trusted yet", 0, seen{hosts: here, newest: old}, step{serve: old, bundle: bundle(old), again: lookAgain}},
		{"at rest", 30 * day, seen{hosts: here, newest: old, bundle: bundle(old), serving: old}, step{serve: old, bundle: bundle(old), again: lookAgain}},
		{"soon to be renewed", 60*day - time.Minute, seen{hosts: here, newest: old, bundle: bundle(old)}, step{serve: old, bundle: bundle(old), again: time.Minute}},
		{"renewed", 60 * day, seen{hosts: here, newest: old, bundle: bundle(old)}, step{make: "ends at 2026-05-30", keep: old, serve: old, bundle: bundle(old), again: lookAgain}},
		{"not trusted yet", 60 * day, seen{hosts: here, newest: fresh, previous: old, bundle: bundle(old)}, step{serve: old, bundle: bundle(fresh, old), again: settle}},
		{"trusted, not settled", 60*day + 40*time.Second, seen{hosts: here, newest: fresh, previous: old, bundle: bundle(fresh, old)}, step{serve: old, bundle: bundle(fresh, old), again: 20 * time.Second}},
		{"settled, not trusted", 60*day + settle, seen{hosts: here, newest: fresh, previous: old, bundle: bundle(old)}, step{serve: old, bundle: bundle(fresh, old), again: lookAgain}},
		{"settled", 60*day + settle, seen{hosts: here, newest: fresh, previous: old, bundle: bundle(fresh, old), serving: old}, step{serve: fresh, bundle: bundle(fresh, old), again: lookAgain}},
		{"the old one ended", 91 * day, seen{hosts: here, newest: fresh, previous: old, bundle: bundle(fresh, old), serving: fresh}, step{serve: fresh, bundle: bundle(fresh), again: lookAgain}},
		{"both ended while no process ran", 200 * day, seen{hosts: here, newest: fresh, previous: old, bundle: bundle(fresh, old)}, step{make: "ended at", serve: fresh, again: lookAgain}},
		{"the Secret is gone", day, seen{hosts: here, bundle: bundle(old), serving: old}, step{make: "there is no certificate", keep: old, serve: old, again: lookAgain}},
		{"the newest in the Secret is spoilt", day, seen{hosts: here, previous: old, bundle: bundle(old)}, step{make: "there is no certificate", keep: old, serve: old, bundle: bundle(old), again: lookAgain}},
		{"the bundle is overwritten", day, seen{hosts: here, newest: old, bundle: []byte("x"), serving: old}, step{serve: old, bundle: bundle(old), again: lookAgain}},
		{"called by an address now", day, seen{hosts: []string{"10.0.0.1"}, newest: old, bundle: bundle(old), serving: old}, step{make: "not for 10.0.0.1", serve: old, bundle: bundle(old), again: lookAgain}},
		{"called by an address, renewed", day, seen{hosts: []string{"10.0.0.1"}, newest: moved, previous: old, bundle: bundle(old), serving: old}, step{serve: moved, bundle: bundle(moved, old), again: lookAgain}},
		{"called by both", day, seen{hosts: []string{"10.0.0.1", service}, newest: both, bundle: bundle(both)}, step{serve: both, bundle: bundle(both), again: lookAgain}},
		{"called by both, with a certificate for one", day, seen{hosts: []string{"10.0.0.1", service}, newest: old}, step{make: "not for 10.0.0.1", serve: old, bundle: bundle(old), again: lookAgain}},
		{"an hour behind who made it", -time.Hour, seen{hosts: here, newest: old, bundle: bundle(old)}, step{serve: old, bundle: bundle(old), again: lookAgain}},
		{"days behind who made it", -3 * day, seen{hosts: here, newest: old, bundle: bundle(old)}, step{make: "in the future: a clock is wrong", serve: old, bundle: bundle(old), again: lookAgain}},
		{"clocks differ, and one was made just now", -3 * day, seen{hosts: here, newest: old, bundle: bundle(old), made: begin.Add(-3*day - 20*time.Second)}, step{serve: old, bundle: bundle(old), again: 40 * time.Second}},
		{"one was made a minute ago", -3 * day, seen{hosts: here, newest: old, made: begin.Add(-3*day - pause)}, step{make: "in the future", serve: old, bundle: bundle(old), again: lookAgain}},
		{"one was made by a clock that was set back since", -3 * day, seen{hosts: here, newest: old, made: begin}, step{make: "in the future", serve: old, bundle: bundle(old), again: lookAgain}},
		{"what is served is in no Secret and not trusted", day, seen{hosts: here, newest: at(t, day), bundle: nil, serving: old}, step{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "what is served is in no Secret and not trusted" {
				tc.want = step{serve: tc.seen.newest, bundle: tc.seen.newest.certPEM, again: lookAgain}
			}
			got := next(begin.Add(tc.after), tc.seen)
			if (got.make == "") != (tc.want.make == "") || !strings.Contains(got.make, tc.want.make) {
				t.Errorf("makes one because %q, want %q", got.make, tc.want.make)
			}
			if got.keep != tc.want.keep || got.serve != tc.want.serve || got.again != tc.want.again {
				t.Errorf("keeps %p, serves %p, looks again in %v; want %p, %p, %v", got.keep, got.serve, got.again, tc.want.keep, tc.want.serve, tc.want.again)
			}
			if !bytes.Equal(got.bundle, tc.want.bundle) {
				t.Errorf("bundle\n%s\nwant\n%s", got.bundle, tc.want.bundle)
			}
		})
	}
}

// TestNoRequestIsRefused plays a year of two replicas, one of which is restarted now and then, with
// API servers that learn of the configuration up to half a minute late: each of them takes at each
// instant what each replica serves.
func TestNoRequestIsRefused(t *testing.T) {
	const late = 30 * time.Second
	hosts := []string{service}
	var newest, previous *pair
	serving := make([]*pair, 2)
	type told struct {
		at     time.Time
		bundle []byte
	}
	var bundles []told
	renewals, switches := 0, 0
	for now := begin; now.Before(begin.Add(365 * day)); {
		again := lookAgain
		for i := range serving {
			s := seen{hosts: hosts, newest: newest, previous: previous, serving: serving[i]}
			if len(bundles) > 0 {
				s.bundle = bundles[len(bundles)-1].bundle
			}
			todo := next(now, s)
			if todo.make != "" {
				renewals++
				fresh, err := newPair(now, hosts)
				if err != nil {
					t.Fatal(err)
				}
				newest, previous = fresh, todo.keep
				again = 0
			} else if !bytes.Equal(todo.bundle, s.bundle) {
				bundles = append(bundles, told{now, todo.bundle})
				again = 0
			}
			if !todo.serve.same(serving[i]) {
				switches++
			}
			serving[i], again = todo.serve, min(again, todo.again)
		}
		for i := len(bundles) - 1; i >= 0 && now.After(begin); i-- {
			for _, p := range serving {
				if err := verify(p, bundles[i].bundle, now); err != nil {
					t.Fatalf("%v: an API server that knows the bundle of %v refuses: %v", now, bundles[i].at, err)
				}
			}
			if now.Sub(bundles[i].at) >= late {
				break
			}
		}
		if now = now.Add(max(again, time.Second)); now.Hour() == 0 {
			serving[now.Day()%2] = nil
		}
	}
	if renewals != 7 || switches < 14 {
		t.Errorf("made %d certificates, and replicas switched %d times", renewals, switches)
	}
}

// verify says whether an API server that trusts the bundle takes the pair.
func verify(p *pair, bundle []byte, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := p.certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: service, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func TestPair(t *testing.T) {
	a, b := at(t, 0), at(t, 0)
	signed := signedBy(t, a)
	for name, tc := range map[string]struct{ certificate, key []byte }{
		"nothing":           {},
		"no key":            {a.certPEM, nil},
		"another's key":     {a.certPEM, b.keyPEM},
		"two certificates":  {bundle(a, b), a.keyPEM},
		"a key twice":       {a.keyPEM, a.keyPEM},
		"cut off":           {a.certPEM[:100], a.keyPEM},
		"signed by another": {signed.certPEM, signed.keyPEM},
	} {
		if p, err := parsePair(tc.certificate, tc.key); err == nil {
			t.Errorf("%s is read as %v", name, p.certificate.Subject)
		}
	}
	if p, err := parsePair(slices.Concat([]byte("# of the webhook\n"), a.certPEM), a.keyPEM); err != nil || !p.same(a) || !bytes.Equal(p.certPEM, a.certPEM) {
		t.Errorf("a comment is in the way: %v", err)
	}
	if a.same(b) || a.same(nil) || (*pair)(nil).same(a) {
		t.Error("two are one")
	}
	if !a.made().Equal(begin) || a.certificate.SerialNumber.Cmp(b.certificate.SerialNumber) == 0 {
		t.Errorf("made at %v, serials %v and %v", a.made(), a.certificate.SerialNumber, b.certificate.SerialNumber)
	}
}

// signedBy is a pair whose certificate another has signed.
func signedBy(t *testing.T, by *pair) *pair {
	t.Helper()
	p := at(t, 0)
	template := *p.certificate
	template.Subject.CommonName = "another"
	p.certPEM = sign(t, &template, by, p)
	return p
}

// FuzzParsePair: what a Secret holds is read or refused.
func FuzzParsePair(f *testing.F) {
	p, err := newPair(begin, []string{service, "10.0.0.1", "::1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.certPEM, p.keyPEM)
	f.Add(p.keyPEM, p.certPEM)
	f.Add([]byte(nil), []byte("-----BEGIN"))
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		got, err := parsePair(certificate, key)
		if err != nil {
			return
		}
		if again, err := parsePair(got.certPEM, got.keyPEM); err != nil || !again.same(got) || !trusts(got.certPEM, got) {
			t.Errorf("what was read is not what is kept: %v", err)
		}
		if _, err := tls.X509KeyPair(got.certPEM, got.keyPEM); err != nil {
			t.Error(err)
		}
	})
}
