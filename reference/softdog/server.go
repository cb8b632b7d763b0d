// Package softdog is a watchdog in software, for machines of the test bed that
// have none.
package softdog

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/internal/listen"
	"github.com/moor-storage/moor/internal/watchdog"
)

// Server answers the commands of package watchdog at a unix socket. It runs
// outside of the machine it resets, and behaves as Linux's device does. It starts when it is
// opened; a client that goes without a word feeds it once more, and leaves it
// running.
type Server struct {
	// Reset resets the machine, in which the watchdog is not started again.
	Reset func()
	// Clock is the machine's if nil.
	Clock clock.WithDelayedExecution

	mu      sync.Mutex
	timer   clock.Timer
	timeout time.Duration // 0: it does not run
}

// Serve answers clients until ctx ends, and stops the watchdog then.
func (s *Server) Serve(ctx context.Context, l net.Listener) {
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	defer listen.CloseWith(ctx, l)()
	var clients sync.WaitGroup
	defer s.stop()
	defer clients.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		clients.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			s.talk(conn)
		})
	}
}

func (s *Server) talk(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	disarmed := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		answer := watchdog.AnswerOK
		switch word {
		case watchdog.CommandTimeout:
			millis, err := strconv.Atoi(rest)
			if err != nil || millis <= 0 {
				return
			}
			s.feed(time.Duration(millis) * time.Millisecond)
			answer = rest
		case watchdog.CommandFeed:
			s.feed(0)
		case watchdog.CommandDisarm:
			disarmed = true
		}
		if disarmed {
			s.stop()
		}
		if _, err := fmt.Fprintln(conn, answer); err != nil {
			break
		}
	}
	if !disarmed {
		s.feed(0)
	}
}

// feed begins the timeout anew; 0 keeps that of before. One that does not run, or
// has reset its machine, has none.
func (s *Server) feed(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if timeout > 0 {
		s.timeout = timeout
	}
	if s.timeout == 0 {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = s.Clock.AfterFunc(s.timeout, s.fire)
}

func (s *Server) fire() {
	s.mu.Lock()
	s.timer, s.timeout = nil, 0
	s.mu.Unlock()
	s.Reset()
}

func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer, s.timeout = nil, 0
}
