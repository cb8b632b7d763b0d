package nvmeaccess

import (
	"fmt"
	"slices"
)

// rule is what a fence asks for: only names of the base whose epoch is not below keep
// their access to the subsystem.
type rule struct {
	base, subsystem string
	below           int64
}

func (r rule) keeps(hostNQN string) bool {
	epoch, ok := EpochOf(r.base, hostNQN)
	return ok && epoch >= r.below
}

// hosts are the names that the subsystem admits. The error says why the list holds for
// nothing: it is not there, it is half an answer, or access does not go by it.
func (r rule) hosts(all []subsystem) ([]string, error) {
	i := slices.IndexFunc(all, func(s subsystem) bool { return s.NQN == r.subsystem })
	if i < 0 {
		return nil, fmt.Errorf("it has no subsystem %s (yet), so it admits nothing there, and cannot be read either", r.subsystem)
	}
	s := all[i]
	switch {
	case s.AllowAnyHost == nil || s.Hosts == nil:
		return nil, fmt.Errorf("it does not say which hosts subsystem %s admits", r.subsystem)
	case *s.AllowAnyHost:
		return nil, fmt.Errorf("subsystem %s admits any host, whatever its name: switch allow_any_host off (nvmf_subsystem_allow_any_host)", r.subsystem)
	}
	for _, other := range all {
		if other.NQN == s.NQN {
			continue
		}
		for _, n := range other.Namespaces {
			if slices.Contains(s.Namespaces, n) {
				return nil, fmt.Errorf("subsystem %s has bdev %s of subsystem %s, too, and is not fenced with it: take it out of there", other.NQN, n.Bdev, s.NQN)
			}
		}
	}
	out := make([]string, 0, len(*s.Hosts))
	for _, h := range *s.Hosts {
		out = append(out, h.NQN)
	}
	return out, nil
}

// waits says in words what of the reading may still change the volume; nil if nothing.
func (r rule) waits(got reading) error {
	hosts, err := r.hosts(got.subsystems)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if !r.keeps(h) {
			return fmt.Errorf("subsystem %s still admits host %q", r.subsystem, h)
		}
	}
	known := map[int64]bool{}
	for _, c := range got.controllers {
		switch {
		case c.ID == nil || c.HostNQN == "":
			return fmt.Errorf("it does not say whose controller of subsystem %s one is", r.subsystem)
		case !r.keeps(c.HostNQN):
			return fmt.Errorf("host %q still has controller %d of subsystem %s", c.HostNQN, *c.ID, r.subsystem)
		}
		known[*c.ID] = true
	}
	for _, q := range got.queues {
		switch {
		case q.Controller == nil || !known[*q.Controller]:
			return fmt.Errorf("queue pair %d of subsystem %s (%s) is of a controller that it does not list", q.ID, r.subsystem, q.State)
		case q.HostNQN != "" && !r.keeps(q.HostNQN):
			return fmt.Errorf("host %q still has queue pair %d of subsystem %s (%s)", q.HostNQN, q.ID, r.subsystem, q.State)
		}
	}
	return nil
}
