package watchdog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// The words of the stand-in, a line each; it answers with a line.
const (
	sayTimeout = "timeout"
	sayFeed    = "keepalive"
	sayDisarm  = "disarm"
	ok         = "ok"
)

// answerTime bounds the wait for the stand-in.
const answerTime = 5 * time.Second

// remote is the stand-in as its client sees it.
type remote struct {
	conn    net.Conn
	answers *bufio.Reader
	timeout time.Duration
}

func dial(path string, timeout time.Duration) (*remote, error) {
	conn, err := net.DialTimeout("unix", path, answerTime)
	if err != nil {
		return nil, fmt.Errorf("open the watchdog's stand-in: %w", err)
	}
	r := &remote{conn: conn, answers: bufio.NewReader(conn)}
	answer, err := r.say(fmt.Sprintf("%s %d", sayTimeout, timeout.Milliseconds()))
	millis, wrong := strconv.Atoi(answer)
	if err = errors.Join(err, wrong); err != nil || millis <= 0 {
		return nil, errors.Join(fmt.Errorf("find out the timeout of the watchdog's stand-in %s (%q): %w", path, answer, err), r.conn.Close())
	}
	r.timeout = time.Duration(millis) * time.Millisecond
	return r, nil
}

func (r *remote) say(words string) (string, error) {
	if err := r.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return "", fmt.Errorf("talk to the watchdog's stand-in: %w", err)
	}
	if _, err := fmt.Fprintln(r.conn, words); err != nil {
		return "", fmt.Errorf("tell the watchdog's stand-in %q: %w", words, err)
	}
	answer, err := r.answers.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("hear the answer of the watchdog's stand-in to %q: %w", words, err)
	}
	return strings.TrimSpace(answer), nil
}

func (r *remote) Timeout() time.Duration { return r.timeout }

func (r *remote) Feed() error {
	answer, err := r.say(sayFeed)
	if err == nil && answer != ok {
		err = fmt.Errorf("feed the watchdog's stand-in: it says %q", answer)
	}
	return err
}

func (r *remote) Close(disarm bool) error {
	var err error
	if disarm {
		_, err = r.say(sayDisarm)
	}
	return errors.Join(err, r.conn.Close())
}

// StandIn is a watchdog in software for a machine that has none: it stands
// outside that machine and behaves as Linux's device does. It starts when it is
// opened; a client that goes without a word feeds it once more, and leaves it
// running.
type StandIn struct {
	// Reset resets the machine, in which the watchdog is not started again.
	Reset func()
	// Clock is the machine's if nil.
	Clock clock.WithDelayedExecution

	mu      sync.Mutex
	timer   clock.Timer
	timeout time.Duration // 0: it does not run
}

// Serve answers clients until ctx ends, and stops the watchdog then.
func (s *StandIn) Serve(ctx context.Context, l net.Listener) {
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
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

func (s *StandIn) talk(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	disarmed := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		answer := ok
		switch word {
		case sayTimeout:
			millis, err := strconv.Atoi(rest)
			if err != nil || millis <= 0 {
				return
			}
			s.feed(time.Duration(millis) * time.Millisecond)
			answer = rest
		case sayFeed:
			s.feed(0)
		case sayDisarm:
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
func (s *StandIn) feed(timeout time.Duration) {
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

func (s *StandIn) fire() {
	s.mu.Lock()
	s.timer, s.timeout = nil, 0
	s.mu.Unlock()
	s.Reset()
}

func (s *StandIn) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer, s.timeout = nil, 0
}
