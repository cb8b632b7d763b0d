package listen

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
)

// slow is a listener of which Accept fails before Close has returned.
type slow struct {
	net.Listener
	closing, closed chan struct{}
}

func (s *slow) Close() error {
	close(s.closing)
	<-s.closed
	return nil
}

func TestCloseWithWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &slow{closing: make(chan struct{}), closed: make(chan struct{})}
		closed, returned := CloseWith(ctx, l), false
		cancel()
		<-l.closing // as Accept would learn it
		go func() {
			closed()
			returned = true
		}()
		synctest.Wait()
		if returned {
			t.Error("it returned while the listener was being closed")
		}
		close(l.closed)
		synctest.Wait()
		if !returned {
			t.Error("it waits for a listener that is closed")
		}
	})
}

// TestTheAddressIsFree: the next listener gets the address after the end, however the
// end came about.
func TestTheAddressIsFree(t *testing.T) {
	for name, canceled := range map[string]bool{"its context ended": true, "it ended by itself": false} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			closed := CloseWith(ctx, l)
			if canceled {
				cancel()
				_, _ = l.Accept()
			}
			closed()
			if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
				_ = c.Close()
				t.Error("the listener still listens")
			}
		})
	}
}
