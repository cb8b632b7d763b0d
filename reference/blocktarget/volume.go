package blocktarget

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/moor-storage/moor/reference/blocktarget/admission"
)

// volume is a volume with its sessions. Its lock makes one row of openings and
// revocations, and of the grants that openings read: a grant that is gone when
// Revoke is called is seen by every opening that Revoke does not.
type volume struct {
	lock     sync.Mutex
	users    int // holders and those who wait to be; under Server.mu
	sessions map[string]*session
	barrier  *admission.Barrier
	limiter  *admission.Limiter
}

// keep makes the books keep a volume, open or not; drop follows.
func (s *Server) keep(name string) *volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.volumes[name]
	if v == nil {
		v = &volume{sessions: map[string]*session{}, barrier: admission.NewBarrier(), limiter: &admission.Limiter{}}
		s.volumes[name] = v
	}
	v.users++
	return v
}

func (s *Server) drop(name string, v *volume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// With no other user, the sessions cannot change now.
	if v.users--; v.users == 0 && len(v.sessions) == 0 {
		delete(s.volumes, name)
	}
}

// hold takes the volume; let gives it back.
func (s *Server) hold(name string) *volume {
	v := s.keep(name)
	v.lock.Lock()
	return v
}

func (s *Server) let(name string, v *volume) {
	v.lock.Unlock()
	s.drop(name, v)
}

// granted checks the right and the token. Reasons of a refusal are the same
// whether there is such a volume or not.
func (s *Server) granted(e Export) (Grant, error) {
	g, err := s.o.Grants.Grant(e.Volume, e.Node)
	if err != nil {
		return Grant{}, err
	}
	if !g.opens(e.Token) {
		return g, fmt.Errorf("%s has the use of volume %s under another token, this one was taken back or never given: %w",
			e.Node, e.Volume, ErrDenied)
	}
	if e.Epoch > 0 && e.Epoch < g.Fenced {
		return g, fmt.Errorf("epoch %d of volume %s is over, it is fenced up to epoch %d: %w", e.Epoch, e.Volume, g.Fenced, ErrDenied)
	}
	return g, nil
}

func (s *Server) look(e Export) (shape, error) {
	g, err := s.granted(e)
	if err != nil {
		return shape{}, err
	}
	st, err := os.Stat(g.File)
	if err != nil {
		return shape{}, fmt.Errorf("look at the data of volume %s: %w", e.Volume, err)
	}
	return shape{size: st.Size(), readOnly: g.ReadOnly}, nil
}

// open opens a volume for a DPU. A session that this DPU has is ended first,
// with its I/O: a client that lost its connection sends again what was not
// answered, and nothing old may come after that. The same goes for one whose
// right is gone, or whose epoch is over, so that a refusal means that no I/O of it
// is left.
func (s *Server) open(e Export, nc net.Conn) (*session, error) {
	v := s.hold(e.Volume)
	defer s.let(e.Volume, v)
	g, denied := s.granted(e)
	if old := v.sessions[e.Node]; old != nil && (denied == nil || !g.opens(old.export.Token) || old.export.Epoch < g.Fenced) {
		old.end("opened anew")
		old.gate.Fence()
		delete(v.sessions, e.Node)
	}
	if denied != nil {
		return nil, denied
	}
	opened, err := s.newSession(v, e, g, nc)
	if err != nil {
		return nil, fmt.Errorf("open the data of volume %s: %w", e.Volume, err)
	}
	v.limiter.Set(g.Limits)
	v.sessions[e.Node] = opened
	s.stats.sessions.Add(1)
	return opened, nil
}

func (s *Server) newSession(v *volume, e Export, g Grant, nc net.Conn) (*session, error) {
	flags := os.O_RDWR
	if g.ReadOnly {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(g.File, flags, 0)
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	opened := &session{
		export: e, shape: shape{size: size, readOnly: g.ReadOnly}, conn: nc, file: f, stats: &s.stats,
		gate: admission.NewGate(), changes: admission.NewGate(), barrier: v.barrier, limiter: v.limiter, over: make(chan struct{}),
	}
	opened.size.Store(size)
	if e.Epoch < g.Fenced {
		opened.changes.Shut()
	}
	if s.o.Record != nil && !g.ReadOnly {
		if opened.recorder, err = s.o.Record(g.File); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return opened, nil
}

// release ends a session: its I/O first, then its place in the books.
func (s *Server) release(x *session) {
	x.gate.Fence()
	s.stats.sessions.Add(-1)
	v := s.hold(x.export.Volume)
	if v.sessions[x.export.Node] == x {
		delete(v.sessions, x.export.Node)
	}
	s.let(x.export.Volume, v)
	if err := x.close(); err != nil {
		s.o.Log.Error(err, "close a volume", "volume", x.export.Volume, "dpu", x.export.Node)
	}
}

// Revoke ends the sessions that node, or every node if none is named, has of
// the volume, and returns how many: their connections are dropped, and the I/O
// that was in flight has ended when it returns. The grant has to be gone before
// it is called, or the DPU opens the volume again. What has no session is
// success.
func (s *Server) Revoke(volumeName, node string) int {
	v := s.hold(volumeName)
	defer s.let(volumeName, v)
	var gone []*session
	for n, x := range v.sessions {
		if node == "" || n == node {
			x.end("the right was taken back")
			gone = append(gone, x)
		}
	}
	for _, x := range gone {
		x.gate.Fence()
		delete(v.sessions, x.export.Node)
	}
	s.o.Log.Info("right taken back", "volume", volumeName, "dpu", node, "sessions", len(gone))
	return len(gone)
}

// Fence refuses every change under an epoch below the one named, and of what was
// opened without an epoch; it returns when those that were in flight have ended, and
// how many sessions it concerned. Sessions of earlier epochs are dropped; those
// without an epoch go on reading, until they are opened anew at an epoch. The grants
// have to say so before it is called, or a session is opened that it does not see.
// It can be repeated.
func (s *Server) Fence(volumeName string, epoch int64) int {
	v := s.hold(volumeName)
	defer s.let(volumeName, v)
	var over []*session
	for _, x := range v.sessions {
		if x.export.Epoch >= epoch {
			continue
		}
		if x.export.Epoch > 0 {
			x.end(fmt.Sprintf("epoch %d is over", x.export.Epoch))
		}
		x.changes.Shut()
		over = append(over, x)
	}
	for _, x := range over {
		x.changes.Fence()
		if x.export.Epoch > 0 {
			x.gate.Fence()
			delete(v.sessions, x.export.Node)
		}
	}
	s.o.Log.Info("fenced", "volume", volumeName, "epoch", epoch, "sessions", len(over))
	return len(over)
}

// Pause makes the changes of all DPUs to the volumes wait, calls during with
// every earlier one done, and lets them go on. Reads are not held up. For as
// long as during runs, the data of the volumes is that of one instant.
func (s *Server) Pause(ctx context.Context, volumes []string, during func(context.Context) error) error {
	volumes = slices.Compact(slices.Sorted(slices.Values(volumes)))
	for _, name := range volumes {
		v := s.keep(name)
		defer s.drop(name, v)
		v.barrier.Pause()
		defer v.barrier.Resume()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the pause came too late: %w", err)
	}
	return during(ctx)
}

// Adjust has those who have the volume open keep to the limits that its grants
// have now.
func (s *Server) Adjust(volumeName string) error {
	v := s.hold(volumeName)
	defer s.let(volumeName, v)
	for _, x := range v.sessions {
		g, err := s.o.Grants.Grant(volumeName, x.export.Node)
		if err != nil {
			return err
		}
		v.limiter.Set(g.Limits)
	}
	return nil
}
