package nvmeaccess

import (
	"context"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
)

// Caller makes one JSON-RPC call of a target. An error says that the target refused, or
// that it is not known what the target did or may do yet; see refused.
type Caller interface {
	Call(ctx context.Context, method string, params, result any) error
}

// Socket is a target on a unix socket, as SPDK serves it. A call ends after timeout.
func Socket(path string, timeout time.Duration) Caller { return snaprpc.New(path, timeout) }

// refused reports whether the target itself answered with an error: what was asked for
// will not happen later.
func refused(err error) bool {
	_, ok := snaprpc.Code(err)
	return ok
}

// Export is a volume at one target: a subsystem that has this volume alone, and that
// Access alone admits hosts to.
type Export struct {
	// Target is asked.
	Target Caller
	// Name is the target's, for messages.
	Name string
	// Subsystem is its NQN.
	Subsystem string
}

// subsystem is what nvmf_get_subsystems lists of one. Pointers tell what was left out of
// an answer from what is empty.
type subsystem struct {
	NQN          string      `json:"nqn"`
	AllowAnyHost *bool       `json:"allow_any_host"`
	Hosts        *[]host     `json:"hosts"`
	Namespaces   []namespace `json:"namespaces"`
}

type namespace struct {
	Bdev string `json:"bdev_name"`
}

type host struct {
	NQN string `json:"nqn"`
}

// controller is what nvmf_subsystem_get_controllers lists: a host that is connected.
type controller struct {
	ID      *int64 `json:"cntlid"`
	HostNQN string `json:"hostnqn"`
}

// queue is what nvmf_subsystem_get_qpairs lists. SPDK lists a queue pair that it
// disconnects, as deactivating, until the last command that it took from it has ended.
type queue struct {
	Controller *int64 `json:"cntlid"`
	ID         int64  `json:"qid"`
	State      string `json:"state"`
	// HostNQN is told by newer versions alone.
	HostNQN string `json:"hostnqn"`
}

// reading is what a target listed of who has access to a subsystem.
type reading struct {
	subsystems  []subsystem
	queues      []queue
	controllers []controller
}

// list asks for the subsystems alone: all of them, since older versions list no single one,
// and another may have the same bdev.
func (e Export) list(ctx context.Context) ([]subsystem, error) {
	var out []subsystem
	err := e.Target.Call(ctx, "nvmf_get_subsystems", nil, &out)
	return out, err
}

// read asks for all. Queue pairs come before controllers: a controller goes after its
// queue pairs, so one that is listed now had whatever name its queue pair acted under.
func (e Export) read(ctx context.Context) (r reading, err error) {
	if r.subsystems, err = e.list(ctx); err != nil {
		return r, err
	}
	p := map[string]string{"nqn": e.Subsystem}
	if err := e.Target.Call(ctx, "nvmf_subsystem_get_qpairs", p, &r.queues); err != nil {
		return r, err
	}
	return r, e.Target.Call(ctx, "nvmf_subsystem_get_controllers", p, &r.controllers)
}

func (e Export) add(ctx context.Context, hostNQN string) error {
	return e.change(ctx, "nvmf_subsystem_add_host", hostNQN)
}

func (e Export) remove(ctx context.Context, hostNQN string) error {
	return e.change(ctx, "nvmf_subsystem_remove_host", hostNQN)
}

func (e Export) change(ctx context.Context, method, hostNQN string) error {
	return e.Target.Call(ctx, method, map[string]string{"nqn": e.Subsystem, "host": hostNQN}, nil)
}
