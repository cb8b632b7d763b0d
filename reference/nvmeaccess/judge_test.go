package nvmeaccess

import (
	"encoding/json"
	"testing"
)

// read decodes what a target lists.
func decode(subsystems, queues, controllers string) (r reading, err error) {
	if err := json.Unmarshal([]byte(subsystems), &r.subsystems); err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(queues), &r.queues); err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(controllers), &r.controllers)
}

const (
	denies = `[{"nqn":"s","allow_any_host":false,"hosts":[]}]`
	none   = `[]`
)

func TestWaits(t *testing.T) {
	r := rule{base: "nqn.b", subsystem: "s", below: 3}
	for name, c := range map[string]struct{ subsystems, queues, controllers, words string }{
		"nothing": {denies, none, none, ""},
		"what may stay": {
			`[{"nqn":"s","allow_any_host":false,"hosts":[{"nqn":"nqn.b:e3"},{"nqn":"nqn.b:e4"}],"namespaces":[{"bdev_name":"a"}]},{"nqn":"o","namespaces":[{"bdev_name":"b"}]}]`,
			`[{"cntlid":1,"qid":1,"state":"enabled","hostnqn":"nqn.b:e3"},{"cntlid":2,"qid":1}]`,
			`[{"cntlid":1,"hostnqn":"nqn.b:e3"},{"cntlid":2,"hostnqn":"nqn.b:e4"}]`, "",
		},
		"no subsystem":                  {`[{"nqn":"o","allow_any_host":false,"hosts":[]}]`, none, none, "it has no subsystem s"},
		"no hosts told":                 {`[{"nqn":"s","allow_any_host":false}]`, none, none, "does not say which hosts"},
		"not told if any host":          {`[{"nqn":"s","hosts":[]}]`, none, none, "does not say which hosts"},
		"any host":                      {`[{"nqn":"s","allow_any_host":true,"hosts":[]}]`, none, none, "admits any host"},
		"a bdev in two":                 {`[{"nqn":"s","allow_any_host":false,"hosts":[],"namespaces":[{"bdev_name":"a"}]},{"nqn":"o","namespaces":[{"bdev_name":"a"}]}]`, none, none, "subsystem o has bdev a"},
		"an earlier epoch":              {`[{"nqn":"s","allow_any_host":false,"hosts":[{"nqn":"nqn.b:e2"}]}]`, none, none, "still admits host"},
		"no epoch":                      {`[{"nqn":"s","allow_any_host":false,"hosts":[{"nqn":"nqn.b"}]}]`, none, none, "still admits host"},
		"another name":                  {`[{"nqn":"s","allow_any_host":false,"hosts":[{"nqn":"nqn.c:e9"}]}]`, none, none, "still admits host"},
		"a controller":                  {denies, none, `[{"cntlid":1,"hostnqn":"nqn.b:e2"}]`, "still has controller 1"},
		"a controller without a name":   {denies, none, `[{"cntlid":1}]`, "does not say whose controller"},
		"a controller without a number": {denies, none, `[{"hostnqn":"nqn.b:e3"}]`, "does not say whose controller"},
		"a queue of no controller":      {denies, `[{"cntlid":1,"qid":1,"state":"deactivating"}]`, none, "(deactivating) is of a controller that it does not list"},
		"a queue without a number":      {denies, `[{"qid":1}]`, `[{"cntlid":0,"hostnqn":"nqn.b:e3"}]`, "is of a controller that it does not list"},
		"a number that was used again":  {denies, `[{"cntlid":1,"qid":1,"hostnqn":"nqn.b:e2"}]`, `[{"cntlid":1,"hostnqn":"nqn.b:e3"}]`, "still has queue pair 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decode(c.subsystems, c.queues, c.controllers)
			wantNil(t, "decode", err)
			if err := r.waits(got); c.words == "" {
				wantNil(t, "waits", err)
			} else {
				wantWords(t, "waits", err, c.words)
			}
		})
	}
}

// FuzzWaits: whatever a target answers, nothing is taken for the end of an epoch that
// names a host which is not kept, or that does not say who is let in.
func FuzzWaits(f *testing.F) {
	f.Add(denies, none, none)
	f.Add(`[{"nqn":"s","allow_any_host":false,"hosts":[{"nqn":"nqn.b:e3"}]}]`, `[{"cntlid":1}]`, `[{"cntlid":1,"hostnqn":"nqn.b:e3"}]`)
	f.Add(`[null]`, `null`, `{}`)
	r := rule{base: "nqn.b", subsystem: "s", below: 3}
	f.Fuzz(func(t *testing.T, subsystems, queues, controllers string) {
		got, err := decode(subsystems, queues, controllers)
		if err != nil || r.waits(got) != nil {
			return
		}
		all := map[int64]bool{}
		for _, c := range got.controllers {
			if e, ok := EpochOf("nqn.b", c.HostNQN); !ok || e < 3 {
				t.Errorf("controller of %q", c.HostNQN)
			}
			all[*c.ID] = true
		}
		for _, q := range got.queues {
			if !all[*q.Controller] {
				t.Errorf("queue pair of controller %d", *q.Controller)
			}
		}
		for _, s := range got.subsystems {
			if s.NQN != "s" {
				continue
			}
			for _, h := range *s.Hosts {
				if e, ok := EpochOf("nqn.b", h.NQN); *s.AllowAnyHost || !ok || e < 3 {
					t.Errorf("admitted is %q", h.NQN)
				}
			}
			break
		}
	})
}
