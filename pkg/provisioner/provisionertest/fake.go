package provisionertest

import (
	"context"
	"fmt"
	"sync"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// The names of the interfaces, as the call log and FailNext know them.
const (
	FaceVolumes     = "Volumes"
	FaceAttachments = "Attachments"
	FaceHost        = "Host"
	FaceDPU         = "DPU"
)

// The nodes that a platform under test knows.
const (
	NodeA = "node-a"
	NodeB = "node-b"
)

// Call is one call that a Fake got, in the order in which they took effect.
type Call struct {
	// Face and Verb name the method: "Volumes", "Create".
	Face, Verb string
	// Object is the volume or device; "volume/node" for attachments; empty
	// for lists.
	Object string
	// Err is what the caller was told.
	Err error
}

// String returns "Face.Verb(object)".
func (c Call) String() string { return fmt.Sprintf("%s.%s(%s)", c.Face, c.Verb, c.Object) }

// Fake is a storage platform in memory. The zero value is not usable; see
// NewFake. All methods are safe for concurrent use.
type Fake struct {
	// Hook, if set, runs at the start of each call, outside all locks: a test
	// may block there, or return an error that ends the call without effect.
	// Set it before the first call.
	Hook func(ctx context.Context, call Call) error

	mu          sync.Mutex
	calls       []Call
	before      map[string][]error
	after       map[string][]error
	nodes       map[string]bool
	made        int
	volumes     map[string]*fakeVolume
	attachments map[string]map[string]provisioner.AttachSpec
	devices     map[string]provisioner.Device
	plain       map[string]bool
	exposures   map[string]fakeExposure
	// sizes are those of volumes that grew, deviceSizes what devices have of it.
	sizes, deviceSizes map[string]int64
	functions          map[provisioner.FunctionType]int
	paths              map[string]provisioner.Path
}

type fakeVolume struct {
	spec   provisioner.VolumeSpec
	volume provisioner.Volume
}

type fakeExposure struct {
	exposure provisioner.Exposure
	function provisioner.FunctionType
}

// NewFake returns an empty platform that knows NodeA, NodeB and the further
// nodes given, and has 4 physical and 16 virtual functions.
func NewFake(nodes ...string) *Fake {
	f := &Fake{
		before:      map[string][]error{},
		after:       map[string][]error{},
		nodes:       map[string]bool{NodeA: true, NodeB: true},
		volumes:     map[string]*fakeVolume{},
		attachments: map[string]map[string]provisioner.AttachSpec{},
		devices:     map[string]provisioner.Device{},
		plain:       map[string]bool{},
		exposures:   map[string]fakeExposure{},
		sizes:       map[string]int64{},
		deviceSizes: map[string]int64{},
		paths:       map[string]provisioner.Path{},
		functions:   map[provisioner.FunctionType]int{provisioner.PF: 4, provisioner.VF: 16},
	}
	for _, n := range nodes {
		f.nodes[n] = true
	}
	return f
}

// Platform returns the interfaces of the fake, all four of them.
func (f *Fake) Platform() provisioner.Platform {
	return provisioner.Platform{
		Volumes:     fakeVolumes{f},
		Attachments: fakeAttachments{f},
		Host:        fakeHost{f},
		DPU:         fakeDPU{f},
	}
}

// AddDevice makes a device known which no Open made, for Expose to find.
func (f *Fake) AddDevice(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plain[name] = true
}

// Grow gives a volume another size. Its device has that once it was opened again.
func (f *Fake) Grow(volumeID string, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sizes[volumeID] = bytes
}

// SetPath sets what Paths tells of a device from now on, and with it how ProbePath ends.
// Until then the device is connected, with nothing in flight.
func (f *Fake) SetPath(p provisioner.Path) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths[p.Device] = p
}

// SetFunctions sets how many functions of a type there are.
func (f *Fake) SetFunctions(t provisioner.FunctionType, total int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.functions[t] = total
}

// FailNext makes the next calls of a verb end with errs, one each, without
// effect. A nil error lets that call through.
func (f *Fake) FailNext(face, verb string, errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := face + "." + verb
	f.before[key] = append(f.before[key], errs...)
}

// LoseNext makes the next calls of a verb take effect and still end with errs,
// as if the answer had been lost on its way.
func (f *Fake) LoseNext(face, verb string, errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := face + "." + verb
	f.after[key] = append(f.after[key], errs...)
}

// Calls returns a copy of the call log.
func (f *Fake) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Call(nil), f.calls...)
}

// CallsTo returns the calls of one verb.
func (f *Fake) CallsTo(face, verb string) []Call {
	var out []Call
	for _, c := range f.Calls() {
		if c.Face == face && c.Verb == verb {
			out = append(out, c)
		}
	}
	return out
}

// ClearCalls empties the call log.
func (f *Fake) ClearCalls() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = nil
}

// do runs one call: hook, context, injected error, the act, a lost answer.
func do[T any](ctx context.Context, f *Fake, call Call, act func() (T, error)) (T, error) {
	var zero T
	hookErr := f.hook(ctx, call)
	f.mu.Lock()
	defer f.mu.Unlock()
	got, err := zero, hookErr
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = take(f.before, call)
	}
	if err == nil {
		got, err = act()
	}
	if err == nil {
		err = take(f.after, call)
	}
	if err != nil {
		got, err = zero, fmt.Errorf("%s: %w", call, err)
	}
	call.Err = err
	f.calls = append(f.calls, call)
	return got, err
}

func (f *Fake) hook(ctx context.Context, call Call) error {
	if f.Hook == nil {
		return nil
	}
	return f.Hook(ctx, call)
}

// take removes and returns the next error injected for a call; nil if none.
func take(injected map[string][]error, call Call) error {
	key := call.Face + "." + call.Verb
	errs := injected[key]
	if len(errs) == 0 {
		return nil
	}
	injected[key] = errs[1:]
	return errs[0]
}
