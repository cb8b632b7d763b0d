package metered

import "github.com/moor-storage/moor/pkg/provisioner"

// Platform returns p, measured under the name given. Names are few and fixed
// (a kind of platform, not an instance).
func (r *Recorder) Platform(name string, p provisioner.Platform) provisioner.Platform {
	of := func(iface string) meter { return meter{r: r, platform: name, iface: iface} }
	decorate[volumes](&p.Volumes, of("Volumes"))
	decorate[attachments](&p.Attachments, of("Attachments"))
	decorate[host](&p.Host, of("Host"))
	decorate[dpu](&p.DPU, of("DPU"))
	decorate[copies](&p.Copies, of("Copies"))
	decorate[snapshots](&p.Snapshots, of("Snapshots"))
	decorate[groups](&p.Groups, of("Groups"))
	decorate[blocks](&p.Blocks, of("Blocks"))
	decorate[inventory](&p.Inventory, of("Inventory"))
	decorate[room](&p.Room, of("Room"))
	decorate[expansion](&p.Expansion, of("Expansion"))
	decorate[change](&p.Change, of("Change"))
	decorate[health](&p.Health, of("Health"))
	decorate[rescan](&p.Rescan, of("Rescan"))
	decorate[fencing](&p.Fencing, of("Fencing"))
	decorate[epochs](&p.Epochs, of("Epochs"))
	return p
}

// decorator is an interface of a platform and the meter of its calls. Each
// interface has a type made of it, whose methods all have one form: the meter
// under the method's name, and the call. Go cannot write that once for all
// signatures; TestMeasuresEveryVerb finds a method that is measured otherwise.
type decorator[T any] struct {
	meter
	next T
}

// measures are the types that are made of a decorator.
type measures[T any] interface {
	~struct {
		meter
		next T
	}
}

// decorate puts a decorator D of the interface T in the place of what it
// measures. A platform may lack the interface: nil stays nil.
func decorate[D measures[T], T any](iface *T, m meter) {
	if any(*iface) != nil {
		*iface = any(D(decorator[T]{m, *iface})).(T)
	}
}

// meter measures the calls of one interface of one platform.
type meter struct {
	r               *Recorder
	platform, iface string
}

// end returns what to defer at the start of a call: it observes the time since
// then and how the call ended.
func (m meter) end(verb string, err *error) func() {
	start := m.r.clock.Now()
	return func() {
		m.r.seconds.WithLabelValues(m.platform, m.iface, verb, code(*err)).
			Observe(m.r.clock.Since(start).Seconds())
	}
}
