package nodehealth

import "time"

// HearDPU records the heartbeats of a DPU by its own name, as they stand in its object
// and in its Lease. 0 and the zero time are none.
func (o *Observer) HearDPU(name string, sequence int64, renewed time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, w := o.clock.Now(), o.dpu(name)
	o.record(w, DPUCluster, byObject, sequence, now)
	if !renewed.IsZero() {
		o.record(w, DPUCluster, byLease, renewed.UnixMicro(), now)
	}
}

// DPU is the heartbeat of a DPU by its own name, whatever host has it, and if none has.
// One that was never heard is watched since it was named first.
func (o *Observer) DPU(name string) Beat {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.beat(*o.dpu(name), DPUCluster, o.clock.Now())
}

func (o *Observer) dpu(name string) *witness {
	w := o.dpus[name]
	if w == nil {
		w = &witness{first: o.clock.Now()}
		o.dpus[name] = w
	}
	return w
}

// DPUSilentSince is since when nothing was heard of the DPU of a host, as far as that is known:
// it is now while nothing at all comes through the API server of the DPU cluster, and no
// earlier than this process has listened.
func (o *Observer) DPUSilentSince(host string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, w, r := o.clock.Now(), o.entry(host).dpu, o.reception[DPUCluster]
	if w.first.IsZero() || now.Sub(r.heard) > o.silence/2 {
		return now
	}
	return later(w.first, w.last, r.since)
}
